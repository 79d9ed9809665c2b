"""`masil run`: one method through one protocol, a line a session."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    protocol: Annotated[
        str, typer.Argument(help="characters, cifar100, cub200, miniimagenet or omniglot.")
    ] = "characters",
    method: Annotated[str, typer.Option(help="The method to judge.")] = "masil",
    backbone: Annotated[str, typer.Option(help="The backbone that makes the activations.")] = "efficientnet_lite0",
    weights: Annotated[
        str, typer.Option(help="A weight file of that backbone, or 'imagenet' for the one that came with pip.")
    ] = "imagenet",
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A folder of `masil train`, whose backbone is taken instead.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets; else MASIL_DATA, else the cache.", show_default=False)
    ] = None,
    draw: Annotated[
        int | None, typer.Option(help="Seed of the shots; else the field's standard shots.", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download the data set if it is not there.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Play a whole protocol: teach a session, test on every class seen so far, go on."""
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from masil.backbones import ActivationStore, create
    from masil.benchmark import play
    from masil.data import load
    from masil.errors import lookup
    from masil.methods import METHODS
    from masil.protocol import PROTOCOLS, sessions, summarise
    from masil.training import load_trained

    shape = lookup("protocol", protocol, PROTOCOLS)
    learner = lookup("method", method, METHODS)()
    dataset = load(shape.dataset, data, download=download)
    stream = sessions(shape, dataset, draw)
    net = create(backbone, weights=weights) if checkpoint is None else load_trained(checkpoint).backbone
    store = ActivationStore()

    console = Console()
    for note in dataset.notes:
        console.print(f"Note: {note}")
    if shape.sessions and draw is None:
        standard = dataset.shots is not None
        console.print("Shots: the field's standard lists." if standard else "Shots: draw 0 (no standard lists found).")
    columns = ("session", "classes", "accuracy", "base", "novel", "harmonic mean", "learnt in")
    table = Table(*columns, title=f"{protocol}: {method} on {net.name}, {shape.way}-way {shape.shot}-shot, %")
    for column in table.columns:
        column.justify = "right"
    scores = []
    with Live(table, console=console, auto_refresh=False) as live:
        for played in play(shape, stream, learner, lambda images: store.get(net, images, device=device)):
            score = played.score
            scores.append(score)
            row = (score.accuracy, score.base, score.novel, score.harmonic_mean)
            table.add_row(
                str(score.session),
                str(shape.seen(score.session).stop),
                *("–" if share is None else f"{100 * share:.2f}" for share in row),
                f"{1000 * played.learn_seconds:.1f} ms",
            )
            live.refresh()
    total = summarise(shape, scores)
    console.print(
        f"average {100 * total.average:.2f}   performance drop {100 * total.performance_drop:.2f}   "
        f"generalised accuracy {100 * total.generalised:.2f}"
    )

"""`masil tune`: what the paper leaves open, chosen on base classes that play novel ones, never on test images."""

from pathlib import Path
from typing import Annotated, Any

import typer

from masil.cli import options


def tune(
    what: Annotated[str, typer.Argument(help="A protocol, whose base session is used, or a folder of photos.")],
    shots: Annotated[int, typer.Option(help="Images of each class that plays novel.")] = 5,
    plays: Annotated[int, typer.Option(help="Divisions into old and new to average over.")] = 2,
    measure: Annotated[str, typer.Option(help="What decides: harmonic_mean or accuracy.")] = "harmonic_mean",
    backbone: options.Backbone = "efficientnet_lite0",
    weights: options.Weights = "imagenet",
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(help="Of the divisions.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the choice and every trial as JSON.")] = False,
) -> None:
    """Choose shrinkage, the weight of concepts and the bias of base classes for your own data."""
    import json as encode
    from dataclasses import asdict

    options.refuse_other_backbone(backbone, weights, checkpoint)

    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from rich.console import Console
    from rich.table import Table

    from masil.backbones import ActivationStore, create
    from masil.data import load
    from masil.errors import InputError
    from masil.learner import TRAINED_BALANCE, Masil
    from masil.learner import tune as choose
    from masil.protocol import PROTOCOLS, sessions
    from masil.training import load_trained

    if what in PROTOCOLS:
        images = next(sessions(PROTOCOLS[what], load(PROTOCOLS[what].dataset, data))).train
    else:
        if data is not None:
            raise InputError(f"--data {data} has no effect here: {what} is a folder of photos and no protocol.")
        images = load(what).train
    net = create(backbone, weights=weights) if checkpoint is None else load_trained(checkpoint).backbone
    activations = ActivationStore().get(net, images, device=device)
    model = Masil(backbone=None, balance=1.0 if checkpoint is None else TRAINED_BALANCE)  # as `masil run` does
    found = choose(activations, images.labels.tolist(), model, shots=shots, plays=plays, measure=measure, seed=seed)
    if json:
        typer.echo(encode.dumps({"chosen": found.chosen, "trials": [asdict(trial) for trial in found.trials]}))
        return
    columns = ("shrinkage", "concepts", "α", "bias", "accuracy", "base", "novel", "harmonic mean")
    table = Table(*columns, title=f"{what}: base classes that play novel, %, the best of {len(found.trials)}")
    for trial in found.trials[:10]:
        shares = (trial.accuracy, trial.base, trial.novel, trial.harmonic_mean)
        chosen = (trial.shrinkage, trial.concepts, trial.alpha, trial.bias)
        table.add_row(*map(str, chosen), *(f"{100 * share:.2f}" for share in shares))
    console = Console()
    console.print(table)
    console.print(_call(backbone, weights, checkpoint, {"balance": model.balance, **found.chosen}), soft_wrap=True)


def _call(backbone: str, weights: str, checkpoint: Path | None, chosen: dict[str, Any]) -> str:
    """Give the line of Python that makes the learner that was chosen."""
    if checkpoint is not None:
        given = [f"load_trained({str(checkpoint)!r}).backbone"]
    else:
        given = [repr(backbone)] if backbone != options.BACKBONE else []
        given += [f"weights={weights!r}"] if weights != options.WEIGHTS else []
        del chosen["balance"]  # it is at its default
    return f"Masil({', '.join([*given, *(f'{name}={value!r}' for name, value in chosen.items())])})"

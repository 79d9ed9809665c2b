"""`masil train`: the base session of a protocol, by a recipe, into a folder."""

from pathlib import Path
from typing import Annotated

import typer


def train(
    protocol: Annotated[str, typer.Argument(help="The protocol whose base session is trained.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for checkpoint, history and weights.")],
    recipe: Annotated[
        str | None, typer.Option(help="The recipe; else the protocol's fast one.", show_default=False)
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="First weights, instead of the recipe's: a file or 'imagenet'.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data sets; else MASIL_DATA, else the cache.", show_default=False)
    ] = None,
    download: Annotated[bool, typer.Option("--download", help="Download the data set if it is not there.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever the folder holds.")] = False,
    steps: Annotated[int, typer.Option(help="Save after so many steps too, not only after each epoch.")] = 0,
) -> None:
    """Train a backbone on a protocol's base session. A run that was stopped goes on where it was."""
    import logging
    from dataclasses import replace

    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from masil.data import load
    from masil.errors import lookup
    from masil.protocol import PROTOCOLS, sessions
    from masil.training import recipe as recipe_called
    from masil.training import save_weights
    from masil.training import train as run

    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("masil.training").setLevel(logging.INFO)
    shape = lookup("protocol", protocol, PROTOCOLS)
    plan = recipe_called(recipe or f"{protocol}-fast")
    if weights is not None:
        plan = replace(plan, weights=weights)
    base = next(sessions(shape, load(shape.dataset, data, download=download)))
    trained = run(base.train, plan, out, device=device, resume=not fresh, checkpoint_steps=steps)
    file = out / "weights.safetensors"
    save_weights(trained.backbone, file)
    typer.echo(f"The weights of {plan.backbone} are in {file}. To judge them: masil run {protocol} --checkpoint {out}")

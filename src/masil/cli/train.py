"""`masil train`: the base session of a protocol, by a recipe, into a folder."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli import options


def train(
    protocol: Annotated[str, typer.Argument(help="The protocol whose base session is trained.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for checkpoints; OUT/final is the result.")],
    recipe: Annotated[
        str | None, typer.Option(help="The recipe; else the usual one of the data set.", show_default=False)
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="First weights, instead of the recipe's: a file or 'imagenet'.", show_default=False),
    ] = None,
    data: options.Data = None,
    download: options.Download = False,
    device: options.Device = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever the folder holds.")] = False,
    hours: Annotated[
        float | None,
        typer.Option(help="Take about so long: the recipe's epochs are multiplied to fit.", show_default=False),
    ] = None,
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
    from masil.training import compact, usual_recipe
    from masil.training import recipe as recipe_called
    from masil.training import train as run

    options.refuse_file(out)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("masil.training").setLevel(logging.INFO)
    shape = lookup("protocol", protocol, PROTOCOLS)
    plan = usual_recipe(shape.dataset) if recipe is None else recipe_called(recipe)
    if weights is not None:
        plan = replace(plan, weights=weights)
    base = next(sessions(shape, load(shape.dataset, data, download=download)))
    run(
        base.train, plan, out, names=base.names, device=device, resume=not fresh, checkpoint_steps=steps, hours=hours
    )  # fmt: skip
    kept = compact(out, out / "final")
    typer.echo(
        f"The trained {plan.backbone} is in {kept.parent}, in half precision and without what only training needs. "
        f"To judge it: masil run {protocol} --checkpoint {kept.parent}"
    )

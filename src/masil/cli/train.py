"""`masil train`: the base session of a protocol, by a recipe, into a folder."""

from pathlib import Path
from typing import Annotated

import typer

from masil.cli import options
from masil.cli.output import log_stages, say


def train(
    protocol: Annotated[str, typer.Argument(help="The protocol whose base session to train.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for checkpoints; OUT/final is the result.")],
    recipe: Annotated[str | None, options.option(text="The recipe; by default the data set's usual one.")] = None,
    weights: Annotated[
        str | None, options.option(text="Weights to start from, instead of the recipe's: a file or 'imagenet'.")
    ] = None,
    data: options.Data = None,
    download: options.Download = False,
    device: options.Device = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again, whatever the folder holds.")] = False,
    hours: Annotated[
        float | None, options.option(text="Take about so long: the recipe's epochs are multiplied to fit.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Save every so many steps too, not only after each epoch.")] = 0,
) -> None:
    """Train a backbone on a protocol's base session. If it was stopped, the same command continues."""
    from dataclasses import replace

    from masil.data import load
    from masil.errors import lookup
    from masil.protocol import PROTOCOLS, sessions
    from masil.training import compact, usual_recipe
    from masil.training import recipe as find_recipe
    from masil.training import train as train_base

    options.refuse_file(out)
    log_stages("training", always=True)
    shape = lookup("protocol", protocol, PROTOCOLS)
    plan = usual_recipe(shape.dataset) if recipe is None else find_recipe(recipe)
    if weights is not None:
        plan = replace(plan, weights=weights)
    base = next(sessions(shape, load(shape.dataset, data, download=download)))
    train_base(
        base.train, plan, out, names=base.names, device=device, resume=not fresh, checkpoint_steps=steps, hours=hours
    )
    final = compact(out, out / "final").parent
    say(
        f"The trained {plan.backbone} is in {final}, in half precision and without what only training needs. "
        f"To judge it: masil run {protocol} --checkpoint {final}"
    )

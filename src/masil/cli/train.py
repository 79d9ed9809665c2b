"""`masil train`: the base session of a protocol, by a recipe; `masil tune`: what the paper leaves open, chosen on base
classes that play novel ones, never on test images.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from masil.cli import options
from masil.cli.output import log_stages, print_json, print_table, say
from masil.errors import InputError, check_seed, lookup


def train(
    protocol: Annotated[str, typer.Argument(help="The protocol whose base session to train.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for checkpoints; OUT/final is the result.")],
    recipe: Annotated[str | None, options.option(text="The recipe; by default the data set's usual one.")] = None,
    weights: Annotated[
        str | None, options.option(text="Weights to start from, instead of the recipe's: a file or 'imagenet'.")
    ] = None,
    parameters: options.Set = None,
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

    from masil.benchmark import with_room
    from masil.data import load
    from masil.protocol import PROTOCOLS, sessions
    from masil.training import TrainOptions, compact, usual_recipe
    from masil.training import recipe as find_recipe
    from masil.training import train as train_base

    options.refuse_unwritable(out)
    how = TrainOptions(resume=not fresh, checkpoint_steps=steps, hours=hours)
    log_stages("training", always=True)
    shape = lookup("protocol", protocol, PROTOCOLS)
    plan = usual_recipe(shape.dataset) if recipe is None else find_recipe(recipe)
    plan = options.change_recipe(plan, options.read_parameters(parameters, []).get("recipe", {}))
    if weights is not None:
        plan = replace(plan, weights=weights)
    plan = with_room(plan, shape)
    base = next(sessions(shape, load(shape.dataset, data, download=download)))
    train_base(base.train, plan, out, names=base.names, device=device, options=how)
    final = compact(out, out / "final").parent
    say(
        f"The trained {plan.backbone} is in {final}, in half precision and without what only training needs. "
        f"To judge it: masil run {protocol} --checkpoint {final}"
    )


def tune(
    what: Annotated[str, typer.Argument(help="A protocol, whose base session is used, or a folder of photos.")],
    shots: Annotated[int, typer.Option(min=1, help="The number of images of each class that plays novel.")] = 5,
    plays: Annotated[int, typer.Option(min=1, help="Average over this many divisions into old and new classes.")] = 2,
    measure: Annotated[str, typer.Option(help="What decides: harmonic_mean or accuracy.")] = "harmonic_mean",
    backbone: options.Backbone = options.BACKBONE,
    weights: options.Weights = options.WEIGHTS,
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(callback=check_seed, help="The seed of the divisions.")] = 0,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Then try power, concepts, calibration, TEEN's weight and balance too; slower."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Choose shrinkage, the weight of concepts and the bias of base classes for your own data."""
    options.refuse_other_backbone(backbone, weights, checkpoint)

    from masil.backbones import ActivationStore, create
    from masil.data import load
    from masil.learner import VARIED, Masil, for_trained
    from masil.learner import tune as choose
    from masil.protocol import PROTOCOLS, sessions
    from masil.training import load_trained

    if what in PROTOCOLS:
        session = next(sessions(PROTOCOLS[what], load(PROTOCOLS[what].dataset, data)))
        images, names = session.train, session.names
    else:
        if data is not None:
            raise InputError(f"--data {data} has no effect here: {what} is a folder of photos and no protocol.")
        folder = load(what)
        images, names = folder.train, folder.classes
    trained = None if checkpoint is None else load_trained(checkpoint)
    net = create(backbone, weights=weights) if trained is None else trained.backbone
    if trained is not None:
        warn_of_seen_classes(trained.names, names, json=json)
    activations = ActivationStore().get(net, images, device=device)
    aim = "harmonic" if measure == "harmonic_mean" else "accuracy"
    model = Masil(backbone=None, **({"balance": 1.0} if checkpoint is None else for_trained({"aim": aim})))
    tuned = choose(
        activations, images.labels.tolist(), model,
        shots=shots, plays=plays, varied=VARIED if everything else None, measure=measure, seed=seed,
    )  # fmt: skip
    if json:
        print_json({"chosen": tuned.chosen, "trials": [asdict(trial) for trial in tuned.trials]}, indent=None)
        return
    rows = []
    for t in tuned.trials[:10]:
        shares = (f"{100 * share:.2f}" for share in (t.accuracy, t.base, t.novel, t.harmonic_mean))
        also = ", ".join(f"{name} {value}" for name, value in t.changed.items() if name != "concepts")
        rows.append((t.shrinkage, t.concepts, t.alpha, t.bias, also, *shares))
    columns = ("shrinkage", "concepts", "α", "bias", "also", "accuracy", "base", "novel", "harmonic mean")
    print_table(f"{what}: base classes that play novel, %, the best of {len(tuned.trials)}", columns, rows, left=0)
    usual = checkpoint is None and "balance" not in tuned.chosen  # it is at its default
    chosen = tuned.chosen if usual else {"balance": model.balance, **tuned.chosen}
    say(f"In Python: {_call(backbone, weights, checkpoint, chosen)}")
    say(f"For masil run and bench: {_options(backbone, weights, checkpoint, chosen)}")


def warn_of_seen_classes(seen: Sequence[str] | None, names: Sequence[str], *, json: bool) -> None:
    """Say that classes that play novel are not new to the backbone, as far as that is known."""
    count = len(names) if seen is None else len(set(seen) & set(names))
    if count:
        which = "these classes" if seen is None or count == len(names) else f"{count} of these {len(names)} classes"
        say(
            f"The backbone was trained on {which}, so those that play novel are not new to it: novel accuracy here is "
            "too high, and what is chosen may not hold for new classes. benchmarks/defaults.py trains without them.",
            json=json,
        )


def _call(backbone: str, weights: str, checkpoint: Path | None, chosen: Mapping[str, Any]) -> str:
    """Give the line of Python that makes the learner that was chosen."""
    if checkpoint is not None:
        given = [f"load_trained({str(checkpoint)!r}).backbone"]
    else:
        given = [repr(backbone)] if backbone != options.BACKBONE else []
        given += [f"weights={weights!r}"] if weights != options.WEIGHTS else []
    return f"Masil({', '.join([*given, *(f'{name}={value!r}' for name, value in chosen.items())])})"


def _options(backbone: str, weights: str, checkpoint: Path | None, chosen: Mapping[str, Any]) -> str:
    """Give the same as options of the command line, quoted for a shell."""
    usual = (
        ("backbone", backbone, options.BACKBONE),
        ("weights", weights, options.WEIGHTS),
        ("checkpoint", checkpoint, None),
    )
    given = [f"--{name} {shlex.quote(str(value))}" for name, value, default in usual if value != default]
    plain = {name: value if isinstance(value, str) else dumps(value) for name, value in chosen.items()}
    return " ".join([*given, *(f"--set {shlex.quote(f'masil.{name}={value}')}" for name, value in plain.items())])

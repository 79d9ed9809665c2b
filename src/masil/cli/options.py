"""Options that several commands take, each said once, and what must hold of them before any work is done."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masil.errors import InputError, StorageError, check_seed, lookup, suggest
from masil.storage import why_unwritable

if TYPE_CHECKING:
    from masil.data import Dataset
    from masil.protocol import Protocol
    from masil.training import Recipe as TrainingRecipe

BACKBONE, WEIGHTS = "efficientnet_lite0", "imagenet"  # where nothing is said


def option(*names: str, text: str) -> Any:
    """Make an option whose default is nothing, or is said in its text."""
    return typer.Option(*names, help=text, show_default=False)


Backbone = Annotated[str, typer.Option(help="The network that turns images into activations.")]
Weights = Annotated[str, typer.Option(help="A weight file for the backbone, or 'imagenet' for the built-in weights.")]
Checkpoint = Annotated[
    Path | None, option(text="A folder written by `masil train`; use its backbone instead. A+B: both together.")
]
Recipe = Annotated[str | None, option(text="Train the base session first, by this recipe (a name or a JSON file).")]
Data = Annotated[Path | None, option(text="The folder of data sets; by default MASIL_DATA, else the cache.")]
Download = Annotated[bool, typer.Option("--download", help="Download the data set if it is missing.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
PROTOCOL = "The name of a protocol, a JSON file with one, or a folder of photos together with --base, --way and --shot."
Base = Annotated[int | None, option(text="For a folder of photos: the number of base classes.")]
Way = Annotated[int | None, option(text="For a folder of photos: the number of new classes in each session.")]
Shot = Annotated[int | None, option(text="For a folder of photos: the number of photos of each new class.")]
Jobs = Annotated[int | None, option("--jobs", "-j", text="How many cells to play at a time; by default one a core.")]
Draws = Annotated[int | None, option(text="Play this many random draws of the shots: 0, 1, 2, …")]
Seed = Annotated[
    int,
    typer.Option(callback=check_seed, help="The seed of everything random in a method; the shots depend on the draw."),
]
Set = Annotated[
    list[str] | None,
    option(
        "--set", text="Set a parameter, METHOD.NAME=VALUE, or a value of the recipe, recipe.NAME=VALUE; repeatable."
    ),
]
Views = Annotated[
    int,
    typer.Option(
        help="Average activations over this many looks at each image: 2 adds its mirror image, 6 or 10 moved copies."
    ),
]
Flip = Annotated[bool, typer.Option("--flip", help="The same as --views 2.")]

Model = Annotated[Path, typer.Argument(help="The model file.")]
By = Annotated[str | None, option(text="The name for the log; by default that of the account.")]
Note = Annotated[str, option(text="A remark for the log.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out files that are no photos.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def refuse_other_backbone(backbone: str, weights: str, checkpoint: Path | None, recipe: str | None = None) -> None:
    """Refuse a backbone or weights beside a checkpoint or a recipe, which bring their own."""
    if checkpoint is None and recipe is None:
        return
    source = f"--checkpoint {checkpoint} brings" if checkpoint is not None else f"--recipe {recipe} names"
    for name, value, usual in (("backbone", backbone, BACKBONE), ("weights", weights, WEIGHTS)):
        if value != usual:
            raise InputError(
                f"--{name} {value} has no effect here: {source} a backbone of its own; leave one of them out."
            )


def refuse_unwritable(folder: Path | None, target: Path | None = None) -> None:
    """Refuse a folder in which nothing can be written, before any work is done; `target` is what is to be in it."""
    if folder is not None and (why := why_unwritable(folder)):
        raise StorageError(f"{target or folder} cannot be written: {why}; choose another name or place.")


def read_parameters(assignments: Sequence[str] | None, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read METHOD.NAME=VALUE, where VALUE is JSON or else a word, into parameters by method; "recipe" is one, too."""
    parameters: dict[str, dict[str, Any]] = {}
    for assignment in assignments or ():
        target, equals, text = assignment.partition("=")
        method, dot, name = target.partition(".")
        if not (equals and dot and name):
            raise InputError(f"--set {assignment} is not of the form METHOD.NAME=VALUE, such as masil.alpha=0.3.")
        lookup("method to be played", method, dict.fromkeys([*methods, "recipe"]))
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        parameters.setdefault(method, {})[name] = value
    return parameters


def change_recipe(recipe: "TrainingRecipe", changes: Mapping[str, Any]) -> "TrainingRecipe":
    """Give a recipe with some of its values changed, and a name that says so; "epochs" are those of all its stages."""
    from masil.training import Recipe as TrainingRecipe

    if not changes:
        return recipe
    table = recipe.to_json()
    for name, value in changes.items():
        *folders, last = name.split(".")
        part: Any = table
        for folder in folders:
            part = part.get(folder) if isinstance(part, dict) else None
        if name == "epochs" and isinstance(value, int):
            shares = [max(1, round(value * epochs / recipe.epochs)) for epochs, _ in recipe.stages[:-1]]
            shares.append(value - sum(shares))  # refused where it is below one
            table["stages"] = [(epochs, px) for epochs, (_, px) in zip(shares, recipe.stages, strict=True)]
        elif isinstance(part, dict) and last in part:
            part[last] = value
        else:
            known = [key for key in (part if isinstance(part, dict) else table) if key not in ("version", "name")]
            raise InputError(f"A recipe has no '{name}' to be set; {suggest(last, [*known, 'epochs'])}")
        table["name"] += f" {name}={value}"
    return TrainingRecipe.from_json(table)


def count_views(views: int, flip: bool) -> int:
    """Give the number of views that --views and --flip ask for together."""
    if flip and views != 1:
        raise InputError(f"--flip means --views 2, but --views {views} is given as well; give one of the two.")
    return 2 if flip else views


def find_protocol(name: str, base: int | None, way: int | None, shot: int | None) -> "tuple[Protocol, Dataset | None]":
    """Give the protocol of a name, a JSON file or a folder of photos, which is then read already."""
    from masil.data import load
    from masil.protocol import PROTOCOLS, cut_protocol, read_protocol

    cut = {"base": base, "way": way, "shot": shot}
    if name not in PROTOCOLS and Path(name).is_dir():
        if missing := [key for key, value in cut.items() if value is None]:
            raise InputError(f"{name} is a folder of photos; say --{missing[0]} too, as in --base 20 --way 5 --shot 5.")
        dataset = load(Path(name))
        return cut_protocol(dataset, Path(name).resolve(), base=base or 0, way=way or 0, shot=shot or 0), dataset
    if given := [key for key, value in cut.items() if value is not None]:
        raise InputError(f"--{given[0]} is for the protocol of a folder of photos; '{name}' has its own.")
    return (read_protocol(Path(name)) if name.endswith(".json") else lookup("protocol", name, PROTOCOLS)), None

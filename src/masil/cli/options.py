"""Options that several commands take, each said once, and what must hold of them before any work is done."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from masil.data import Dataset
    from masil.protocol import Protocol

BACKBONE, WEIGHTS = "efficientnet_lite0", "imagenet"  # where nothing is said


def option(*names: str, text: str) -> Any:
    """Make an option whose default is nothing, or is said in its text."""
    return typer.Option(*names, help=text, show_default=False)


Backbone = Annotated[str, typer.Option(help="The network that turns images into activations.")]
Weights = Annotated[str, typer.Option(help="A weight file for the backbone, or 'imagenet' for the built-in weights.")]
Checkpoint = Annotated[Path | None, option(text="A folder written by `masil train`; use its backbone instead.")]
Recipe = Annotated[str | None, option(text="Train the base session first, by this recipe (a name or a JSON file).")]
Data = Annotated[Path | None, option(text="The folder of data sets; by default MASIL_DATA, else the cache.")]
Download = Annotated[bool, typer.Option("--download", help="Download the data set if it is missing.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
PROTOCOL = "The name of a protocol, a JSON file with one, or a folder of photos together with --base, --way and --shot."
Base = Annotated[int | None, option(text="For a folder of photos: the number of base classes.")]
Way = Annotated[int | None, option(text="For a folder of photos: the number of new classes in each session.")]
Shot = Annotated[int | None, option(text="For a folder of photos: the number of photos of each new class.")]
Draws = Annotated[int | None, option(text="Play this many random draws of the shots: 0, 1, 2, …")]
Seed = Annotated[int, typer.Option(help="The seed of everything random in a method; the shots depend on the draw.")]
Set = Annotated[
    list[str] | None, option("--set", text="Set a parameter of a method: METHOD.NAME=VALUE. May be repeated.")
]
Flip = Annotated[bool, typer.Option("--flip", help="Average activations over each image and its mirror image.")]


def refuse_other_backbone(backbone: str, weights: str, checkpoint: Path | None, recipe: str | None = None) -> None:
    """Refuse a backbone or weights beside a checkpoint or a recipe, which bring their own."""
    from masil.errors import InputError

    if checkpoint is None and recipe is None:
        return
    source = f"--checkpoint {checkpoint} brings" if checkpoint is not None else f"--recipe {recipe} names"
    for name, value, usual in (("backbone", backbone, BACKBONE), ("weights", weights, WEIGHTS)):
        if value != usual:
            raise InputError(
                f"--{name} {value} has no effect here: {source} a backbone of its own; leave one of them out."
            )


def refuse_file(folder: Path | None) -> None:
    """Refuse a folder to write to that cannot be one, because it or a folder above it is a file."""
    from masil.errors import StorageError

    for path in () if folder is None else (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise StorageError(f"--out names the folder {folder}, but {path} is a file; choose another name.")


def read_parameters(assignments: Sequence[str] | None, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read METHOD.NAME=VALUE, where VALUE is JSON or else a word, into parameters by method."""
    import json

    from masil.errors import InputError, lookup

    parameters: dict[str, dict[str, Any]] = {}
    for assignment in assignments or ():
        target, equals, text = assignment.partition("=")
        method, dot, name = target.partition(".")
        if not (equals and dot and name):
            raise InputError(f"--set {assignment} is not of the form METHOD.NAME=VALUE, such as masil.alpha=0.3.")
        lookup("method to be played", method, dict.fromkeys(methods))
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        parameters.setdefault(method, {})[name] = value
    return parameters


def find_protocol(name: str, base: int | None, way: int | None, shot: int | None) -> "tuple[Protocol, Dataset | None]":
    """Give the protocol of a name, a JSON file or a folder of photos, which is then read already."""
    from masil.data import load
    from masil.errors import InputError, lookup
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

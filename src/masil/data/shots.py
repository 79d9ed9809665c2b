"""The field's standard shots, which come with the package: `standard_shots/NAME.txt`, a line a session.

A line names the training images of session 1, 2, …: by index for CIFAR-100, by file for the others. The base session
needs no list, because it is every training image of its classes.
"""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

Find = Callable[[str], int | None]  # the position of a training image by what the lists call it

_LISTS = files("masil.data") / "standard_shots"


def has_standard_shots(name: str) -> bool:
    """Say whether the field has agreed on shots for the data set called `name`."""
    return (_LISTS / f"{name}.txt").is_file()


def standard_lists(name: str) -> list[list[str]]:
    """Give the images of session 1, 2, … as the lists call them."""
    return [line.split() for line in (_LISTS / f"{name}.txt").read_text("utf-8").splitlines()]


def standard_shots(name: str, find: Find, beside: Path) -> tuple[dict[int, Tensor] | None, tuple[str, ...]]:
    """Give the shots of session 1, 2, … as ascending positions among the training images, and what there is to note.

    They are None where some are not among the training images. `beside` is where others keep lists; they are not read,
    but it is noted if they differ.
    """
    lists = standard_lists(name)
    found = {number: [find(image) for image in images] for number, images in enumerate(lists, start=1)}
    if missing := sum(positions.count(None) for positions in found.values()):
        total = sum(map(len, lists))
        return None, (
            f"{missing} of the {total} standard shots are not among the training images: draw shots instead.",
        )
    shots = {number: sorted(position for position in found[number] if position is not None) for number in found}
    others = {number: beside / f"session_{number + 1}.txt" for number in shots}
    differ = any(path.is_file() and _read(path, find) != set(shots[number]) for number, path in others.items())
    notes = (f"The lists of {beside} differ from the field's standard shots, and are not used.",) if differ else ()
    return {number: torch.tensor(positions) for number, positions in shots.items()}, notes


def _read(path: Path, find: Find) -> set[int | None]:
    return {find(line.strip()) for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()}

"""Omniglot: 1,623 handwritten characters of 50 alphabets, each drawn once by each of 20 people.

The drawings of the first 15 people are for training, those of the last 5 for the test. The background alphabets come
first and the evaluation alphabets after them, each in alphabetical order, with their characters in order.
"""

import os
from pathlib import Path

from masil.data.images import Dataset
from masil.data.listed import Listed, listed_images, not_found
from masil.errors import DataError

CHARACTERS = 1623
_DRAWINGS = 20
_TRAIN = 15
_PARTS = ("images_background", "images_evaluation")


def find_omniglot(root: Path) -> Path | None:
    """Give the folder that holds both parts, or None."""
    for folder in (root / "omniglot", root / "omniglot-py"):
        if all((folder / part).is_dir() for part in _PARTS):
            return folder
    return None


def read_omniglot(root: Path) -> Dataset:
    """Read Omniglot from `root`/omniglot/images_{background,evaluation}/<alphabet>/<character>/*.png."""
    if (folder := find_omniglot(root)) is None:
        raise not_found(
            "Omniglot", root, [f"omniglot/{part}/" for part in _PARTS],
            "unpack images_background.zip and images_evaluation.zip of https://github.com/brendenlake/omniglot there.",
        )  # fmt: skip
    classes: list[str] = []
    train: list[Listed] = []
    test: list[Listed] = []
    for part in _PARTS:
        for alphabet in _names(folder / part):
            for character in _names(folder / part / alphabet):
                inside = f"{part}/{alphabet}/{character}"
                drawings = _names(folder / inside)
                if len(drawings) != _DRAWINGS:
                    raise DataError(f"{folder / inside} holds {len(drawings)} drawings instead of {_DRAWINGS}.")
                for number, drawing in enumerate(drawings):
                    (train if number < _TRAIN else test).append((f"{inside}/{drawing}", len(classes)))
                classes.append(f"{alphabet.replace('_', ' ')}/{character}")
    if len(classes) != CHARACTERS:
        raise DataError(f"{folder} holds {len(classes):,} characters instead of {CHARACTERS:,}; unpack it again.")
    return Dataset("omniglot", tuple(classes), listed_images(folder, train), listed_images(folder, test))


def _names(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208  names are enough

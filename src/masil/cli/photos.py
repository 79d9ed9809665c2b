"""What the commands for people with photos share: folders of photos, lists of files, answers as tables or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from masil.cli.output import percent, print_json, print_table, say, shown  # noqa: F401  other commands take them here
from masil.errors import plural as plural

if TYPE_CHECKING:
    from masil.data import Images
    from masil.learner import Masil


@final
@dataclass(frozen=True)
class Photos:
    """Photos sorted by class, and what was left out of them."""

    images: Images
    names: tuple[str, ...]  # label i is names[i]
    notes: tuple[str, ...]

    @property
    def labels(self) -> list[str]:
        """The class of each photo."""
        return [self.names[label] for label in self.images.labels.tolist()]

    @property
    def counts(self) -> dict[str, int]:
        """How many photos each class has."""
        labels = self.labels
        return {name: labels.count(name) for name in self.names}


def read_photos(folder: Path, *, skip_bad: bool = False, split: str = "train") -> Photos:
    """Read a folder of class folders, all of it; or, where it is divided into train/ and test/, that part."""
    import torch

    from masil.data import file_images, read_folder

    dataset = read_folder(folder, skip_bad=skip_bad)
    divided = {"train", "test"} <= {each.name.casefold() for each in folder.iterdir() if each.is_dir()}
    parts = [getattr(dataset, split)] if divided else [dataset.train, dataset.test]
    found = sorted((label, part.name(place)) for part in parts for place, label in enumerate(part.labels.tolist()))
    labels = torch.tensor([label for label, _ in found], dtype=torch.int64)
    images = file_images(folder, [file for _, file in found], labels)
    notes = [note for note in dataset.notes if "left out" in note]  # the others are about a split that is not made here
    images, again = _once(folder, images, dataset.classes)
    return Photos(images, dataset.classes, (*notes, *again))


def _once(folder: Path, images: Images, names: Sequence[str]) -> tuple[Images, list[str]]:
    """Refuse a photo that is in two classes, and count one that is twice in its own class once."""
    from masil.errors import DataError

    first: dict[str, int] = {}
    keep = []
    for place in range(len(images)):
        content = images.subset([place]).fingerprint()
        earlier = first.setdefault(content, place)
        if earlier == place:
            keep.append(place)
        elif (own := int(images.labels[place])) != (other := int(images.labels[earlier])):
            raise DataError(
                f"{folder / images.name(earlier)} and {folder / images.name(place)} are the same photo in two classes, "
                f"'{names[other]}' and '{names[own]}'; remove it from one of them."
            )
    twice = len(images) - len(keep)
    notes = [f"{twice} photo{'s' * (twice > 1)} left out, because the class has the same one already."] if twice else []
    return images.subset(keep), notes


def remarks(photos: Photos) -> list[str]:
    """Give what a teacher should know: what was left out, and classes with a single photo."""
    single = [name for name, count in photos.counts.items() if count == 1]
    if not single:
        return list(photos.notes)
    which = f"'{shown(single[0])}' has" if len(single) == 1 else f"{len(single)} classes have"
    return [*photos.notes, f"{which} one photo only; with five a class is recognised far more often."]


def listed_files(arguments: Iterable[str]) -> Iterator[Path]:
    """Give the files that arguments name: a file, all of a folder, or, for '-', a path a line from standard input."""
    from masil.errors import InputError

    for argument in arguments:
        if argument == "-":
            if sys.stdin.isatty():
                raise InputError("'-' reads a list of paths from standard input, but that is the keyboard.")
            yield from (path for line in sys.stdin if line.strip() for path in _files(Path(line.rstrip("\r\n"))))
        else:
            yield from _files(Path(argument))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for each in sorted(path.rglob("*")):
        if each.is_file() and not any(part.startswith(".") for part in each.relative_to(path).parts):
            yield each


def load_model(path: Path, device: str) -> Masil:
    """Read a model, refusing one that knows no images."""
    from masil.hardware import probe

    probe()  # before torch is used: what it finds about the processor holds for this process

    from masil.errors import InputError
    from masil.learner import Masil

    model = Masil.load(path, device=device)
    if model.encoder_.backbone is None:
        raise InputError(f"The model {path} takes activations and not photos; use it from Python.")
    return model


def refuse_overwriting(path: Path, force: bool) -> None:
    """Stop before anything is lost, and before any work is done for nothing."""
    from masil.errors import StorageError

    if path.is_dir():
        raise StorageError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not force:
        raise StorageError(f"{path} exists already; choose another name, or overwrite it with --force.")

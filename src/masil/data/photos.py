"""Any folder of images: the name of a folder is the name of a class, and what lies deeper belongs to that class.

`read_photos` gives them all. `read_folder` makes a data set of them: either `train/` and `test/` hold the same classes,
or there is one tree, split class by class: of n images round(test_share · n), but at least one and never all, are for
the test. They are those whose names hash lowest with the seed, so the split is the same on every machine, a class's
split does not depend on the other classes, and a new image hardly moves it.
"""

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import torch

from masil.data.decode import decode_image
from masil.data.images import Dataset, Images
from masil.data.sources import content_digest, file_images, in_threads
from masil.errors import DataError, InputError
from masil.progress import track
from masil.wording import plural

TEST_SHARE = 0.2
_SPLITS = {"train", "test", "val", "valid", "validation", "dev"}
_SYSTEM_FILES = {"thumbs.db", "desktop.ini"}
_SYSTEM_FOLDERS = {"__macosx"}

Tree = dict[str, list[str]]  # class → its files, as paths from the folder of the data set


@final
@dataclass(frozen=True)
class Photos:
    """Photos sorted by class, each content once, and what was left out of the folder."""

    images: Images  # label i is names[i]
    names: tuple[str, ...]
    notes: tuple[str, ...]  # what was left out, as sentences
    left_out: Mapping[str, str]  # file → a sentence: it cannot be read, or is a copy

    @property
    def labels(self) -> list[str]:
        """The class of each photo."""
        return [self.names[label] for label in self.images.labels.tolist()]

    @property
    def counts(self) -> dict[str, int]:
        """How many photos each class has."""
        counts = torch.bincount(self.images.labels, minlength=len(self.names)).tolist()
        return dict(zip(self.names, counts, strict=True))


@final
@dataclass(frozen=True)
class _Folder:
    """The usable files of a folder: one tree "all", or one for "train" and one for "test"."""

    root: Path
    trees: dict[str, Tree]
    classes: list[str]
    notes: list[str]
    faults: dict[str, str]  # file → why it cannot be used

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(unicodedata.normalize("NFC", name) for name in self.classes)

    def images(self, tree: Tree) -> Images:
        files = [file for name in self.classes for file in tree.get(name, ())]
        labels = [label for label, name in enumerate(self.classes) for _ in tree.get(name, ())]
        return file_images(self.root, files, torch.tensor(labels, dtype=torch.int64))


def read_photos(folder: Path | str, *, part: Literal["train", "test"] = "train", skip_bad: bool = False) -> Photos:
    """Read all photos of a folder of class folders; where it is divided into train/ and test/, those of that part.

    A photo that is twice in its class counts once, and one that is in two classes is refused. All files that cannot be
    read are named at once, or left out with `skip_bad`.
    """
    contents = _read(Path(folder), skip_bad)
    tree = contents.trees.get("all") or contents.trees[part]
    images = contents.images({name: sorted(files) for name, files in tree.items()})
    originals = images.originals()
    copies = {position: first for position, first in enumerate(originals) if position != first}
    for position, first in copies.items():
        later, earlier = (contents.names[int(images.labels[which])] for which in (position, first))
        if later != earlier:
            files = f"{contents.root / images.name(first)} and {contents.root / images.name(position)}"
            raise DataError(
                f"{files} are the same photo in two classes, '{earlier}' and '{later}'; remove it from one of them."
            )
    left_out = contents.faults | {
        images.name(copy): f"{contents.root / images.name(copy)} is the same photo as {images.name(copies[copy])}."
        for copy in copies
    }
    again = f"{plural(len(copies), 'photo')} left out, because the class has the same one already."
    notes = [*contents.notes, again] if copies else contents.notes
    return Photos(images.subset(sorted(set(originals))), contents.names, tuple(notes), left_out)


def photo_classes(folder: Path | str) -> tuple[str, ...]:
    """Name the classes that `read_photos` would find; no photo is opened."""
    trees, _ = _find(Path(folder))
    return tuple(unicodedata.normalize("NFC", name) for name in trees.get("all") or trees["train"])


def read_folder(folder: Path | str, test_share: float = TEST_SHARE, seed: int = 0, skip_bad: bool = False) -> Dataset:
    """Read a folder of images into a data set, naming all files that cannot be read at once.

    With `skip_bad` those are left out instead, and the notes of the data set say which.
    """
    if not 0 < test_share < 1:
        raise InputError(f"The share of test images is {test_share}; it must lie between 0 and 1.")
    contents = _read(Path(folder), skip_bad)
    trees = _split(contents.trees["all"], test_share, seed) if "all" in contents.trees else contents.trees
    notes = list(contents.notes)
    if untested := [repr(name) for name in contents.classes if not trees["test"].get(name)]:
        notes.append(f"There is no image to test on for {plural(len(untested), 'class')}: {', '.join(untested)}.")
    train, test = (contents.images(trees[split]) for split in ("train", "test"))
    notes += _in_both(train, test)
    return Dataset(contents.root.resolve().name, contents.names, train, test, notes=tuple(notes))


def _read(root: Path, skip_bad: bool) -> _Folder:
    """Find the classes and their files, and check that every file can be used and every class has one."""
    trees, notes = _find(root)
    classes = sorted({name for tree in trees.values() for name in tree}, key=natural)
    _refuse_alike(root, classes)
    files = [file for tree in trees.values() for name in tree for file in tree[name]]
    checks = track(in_threads(lambda file: _fault(root / file), files), f"Reading {root.name}", len(files))
    faults = {file: fault for file, fault in zip(files, checks, strict=True) if fault}
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults.values())
        if not skip_bad:
            raise DataError(
                f"{plural(len(faults), 'file')} of {len(files)} in {root} cannot be used:\n{lines}\n"
                "Repair or remove them, or have them left out: by --skip-bad of fit, learn and evaluate, or by "
                "`skip_bad=True` in Python."
            )
        notes.append(f"{plural(len(faults), 'file')} of {len(files)} in {root} left out:\n{lines}")
        for tree in trees.values():
            tree.update({name: [file for file in tree[name] if file not in faults] for name in tree})
    to_train = trees["all"] if "all" in trees else trees["train"]
    if empty := [repr(name) for name in classes if not to_train.get(name)]:
        short = f"{plural(len(empty), 'class')}: {', '.join(empty)}"
        raise DataError(f"{root} has no image to train on for {short}; add some.")
    return _Folder(root, trees, classes, notes=notes, faults=faults)


def _find(root: Path) -> tuple[dict[str, Tree], list[str]]:
    """Find the trees of training and test images, or the one tree of all, and what lies beside them."""
    if not root.is_dir():
        raise DataError(
            f"{root} is a file, not a folder of images." if root.exists() else f"There is no folder {root}."
        )
    folders, files = listing(root)
    if not folders and not files:
        raise DataError(f"{root} is empty; it should hold a folder of images for each class.")
    _refuse_alike(root, folders)
    stray = f"{plural(len(files), 'file')} beside the folders of {root} left out: {', '.join(files)}."
    notes = [stray] if files else []
    splits = {name.casefold(): name for name in folders}
    if {"train", "test"} <= set(splits):
        if others := [name for name in folders if name.casefold() not in ("train", "test")]:
            notes.append(f"{plural(len(others), 'folder')} beside train/ and test/ left out: {', '.join(others)}.")
        return {split: class_tree(root, splits[split]) for split in ("train", "test")}, notes
    if folders and set(splits) <= _SPLITS:
        raise DataError(
            f"{root} holds {', '.join(folders)}, but not both train and test; add or rename what is missing."
        )
    return {"all": class_tree(root)}, notes


def _refuse_alike(root: Path, folders: Sequence[str]) -> None:
    for group in alike(folders):
        raise DataError(
            f"The folders {' and '.join(map(repr, group))} of {root} differ only in case, or in how an accent is "
            "written; rename or merge them."
        )


def _fault(path: Path) -> str | None:
    """Say why a file cannot be used. Its content is hashed by the way: the fingerprint need not read it again."""
    try:
        if not path.is_file():
            return f"{path} is {'a link that leads nowhere' if path.is_symlink() else 'not a regular file'}."
        content = path.read_bytes()
        content_digest(str(path), content)
        decode_image(content, side=1, name=str(path))
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})."
    except DataError as error:
        return str(error)
    return None


def _split(tree: Tree, test_share: float, seed: int) -> dict[str, Tree]:
    train: Tree = {}
    test: Tree = {}
    for name, files in tree.items():
        ranked = sorted(files, key=lambda file: hashlib.sha256(f"{seed}/".encode() + _portable(file)).digest())
        chosen = set(ranked[: min(len(files) - 1, max(1, round(test_share * len(files))))])
        train[name] = [file for file in files if file not in chosen]
        test[name] = [file for file in files if file in chosen]
    return {"train": train, "test": test}


def _portable(file: str) -> bytes:
    """Give the bytes of a path that are the same on every system."""
    return os.fsencode(unicodedata.normalize("NFC", Path(file).as_posix()))


def _in_both(train: Images, test: Images) -> list[str]:
    """Note images that are both trained on and tested on: they flatter the score."""
    images = Images.concat([train, test])
    tested = list(enumerate(images.originals()))[len(train) :]
    both = [f"{images.name(position)} = {images.name(first)}" for position, first in tested if first < len(train)]
    return [f"{plural(len(both), 'test image')} equal to a training image: {', '.join(both)}."] if both else []


def class_tree(root: Path, inside: str = "") -> Tree:
    """Find the files of every class folder in `root`/`inside`. What lies deeper belongs to the class above it."""
    start = root / inside
    folders, _ = listing(start)
    if not folders:
        raise DataError(f"{start} holds no folder; put the images of each class in a folder with the class's name.")
    return {
        name: sorted((str(file.relative_to(root)) for file in _walk(start / name, set())), key=natural)
        for name in folders
    }


def listing(folder: Path) -> tuple[list[str], list[str]]:
    """Name the folders and the files in `folder`, hidden ones and the system's own left out."""
    try:
        with os.scandir(folder) as scanned:
            entries = {entry.name: _is_folder(entry) for entry in scanned if not entry.name.startswith(".")}
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be listed ({error.strerror}).") from error
    folders = [name for name, inner in entries.items() if inner and name.casefold() not in _SYSTEM_FOLDERS]
    files = [name for name, inner in entries.items() if not inner and name.casefold() not in _SYSTEM_FILES]
    return sorted(folders, key=natural), sorted(files, key=natural)


def _walk(folder: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """Give every file below `folder`; links are followed, but no folder is entered twice, so a loop of links ends."""
    state = folder.stat()
    if (state.st_dev, state.st_ino) in seen:
        return
    seen.add((state.st_dev, state.st_ino))
    folders, files = listing(folder)
    yield from (folder / name for name in files)
    for name in folders:
        yield from _walk(folder / name, seen)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort as people do: 'img2' before 'img10', capitals beside small letters."""
    parts = re.split(r"(\d+)", _folded(name))
    return [(int(part), "") if odd % 2 else (-1, part) for odd, part in enumerate(parts)], name


def alike(names: Sequence[str]) -> list[list[str]]:
    """Group the names that people would take for one another; names that stand alone are left out."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_folded(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _folded(name: str) -> str:
    """Fold away what people, and some file systems, do not see: case, and how an accent is written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())

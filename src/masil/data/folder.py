"""Any folder of images: the name of a folder is the name of a class, and what lies deeper belongs to that class.

Either `train/` and `test/` hold the same classes, or there is one tree, split class by class: of n images
round(test_share · n), but at least one and never all, are for the test. They are those whose names hash lowest with the
seed, so the split is the same on every machine, a class's split does not depend on the other classes, and a new image
hardly moves it.
"""

import hashlib
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from masil.data.decode import decode_image
from masil.data.files import FileImages, content_digest, in_threads
from masil.data.images import Dataset
from masil.data.tree import Tree, alike, class_tree, listing, natural
from masil.errors import DataError, InputError, plural
from masil.progress import track

TEST_SHARE = 0.2
_SPLITS = {"train", "test", "val", "valid", "validation", "dev"}


def read_folder(folder: Path | str, test_share: float = TEST_SHARE, seed: int = 0, skip_bad: bool = False) -> Dataset:
    """Read a folder of images into a data set, naming all files that cannot be read at once.

    With `skip_bad` those are left out instead, and the notes of the data set say which.
    """
    if not 0 < test_share < 1:
        raise InputError(f"The share of test images is {test_share}; it must lie between 0 and 1.")
    root = Path(folder)
    trees, notes = _find(root)
    classes = _classes(root, trees)
    notes += _drop_bad(root, trees, skip_bad)
    if "all" in trees:
        trees = _split(trees["all"], test_share, seed)
    notes += _check_supply(root, trees, classes) + _twins(root, trees)
    train, test = (_images(root, trees[split], classes) for split in ("train", "test"))
    names = tuple(unicodedata.normalize("NFC", name) for name in classes)
    return Dataset(root.resolve().name, names, train, test, notes=tuple(notes))


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


def _classes(root: Path, trees: Mapping[str, Tree]) -> list[str]:
    """Sort the classes of all splits, refusing names that would be taken for one another."""
    classes = sorted({name for tree in trees.values() for name in tree}, key=natural)
    _refuse_alike(root, classes)
    return classes


def _refuse_alike(root: Path, folders: Sequence[str]) -> None:
    if twins := alike(folders):
        raise DataError(
            f"The folders {' and '.join(map(repr, twins[0]))} of {root} differ only in case, or in how an accent is "
            "written; rename or merge them."
        )


def _drop_bad(root: Path, trees: Mapping[str, Tree], skip_bad: bool) -> list[str]:
    """Decode every file once; refuse the unreadable ones together, or take them out of the trees."""
    files = [file for tree in trees.values() for name in tree for file in tree[name]]
    found = track(in_threads(lambda file: _fault(root / file), files), f"Reading {root.name}", len(files))
    faults = {file: fault for file, fault in zip(files, found, strict=True) if fault}
    if not faults:
        return []
    lines = "\n".join(f"  {fault}" for fault in faults.values())
    if not skip_bad:
        raise DataError(
            f"{plural(len(faults), 'file')} of {len(files)} in {root} cannot be used:\n{lines}\n"
            "Repair or remove them, or have them left out (`skip_bad`)."
        )
    for tree in trees.values():
        tree.update({name: [file for file in tree[name] if file not in faults] for name in tree})
    return [f"{plural(len(faults), 'file')} of {len(files)} in {root} left out:\n{lines}"]


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
        number = min(len(files) - 1, max(1, round(test_share * len(files)))) if files else 0
        chosen = set(ranked[:number])
        train[name] = [file for file in files if file not in chosen]
        test[name] = [file for file in files if file in chosen]
    return {"train": train, "test": test}


def _portable(file: str) -> bytes:
    """Give the bytes of a path that are the same on every system."""
    return os.fsencode(unicodedata.normalize("NFC", Path(file).as_posix()))


def _check_supply(root: Path, trees: Mapping[str, Tree], classes: Sequence[str]) -> list[str]:
    """Refuse classes without training images; note those without test images."""
    train, test = ([repr(name) for name in classes if not trees[split].get(name)] for split in ("train", "test"))
    if train:
        short = f"{plural(len(train), 'class')}: {', '.join(train)}"
        raise DataError(f"{root} has no image to train on for {short}; add some.")
    return [f"There is no image to test on for {plural(len(test), 'class')}: {', '.join(test)}."] if test else []


def _twins(root: Path, trees: Mapping[str, Tree]) -> list[str]:
    """Note images that are both trained on and tested on: they flatter the score."""
    train, test = (
        {content_digest(str(root / file)): file for files in trees[split].values() for file in files}
        for split in ("train", "test")
    )
    both = [f"{file} = {train[content]}" for content, file in test.items() if content in train]
    return [f"{plural(len(both), 'test image')} equal to a training image: {', '.join(both)}."] if both else []


def _images(root: Path, tree: Tree, classes: Sequence[str]) -> FileImages:
    files = [file for name in classes for file in tree.get(name, ())]
    labels = [label for label, name in enumerate(classes) for _ in tree.get(name, ())]
    return FileImages(root, files, torch.tensor(labels, dtype=torch.int64))

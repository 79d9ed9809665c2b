"""miniImageNet by the field's lists: 100 classes, 500 training and 100 test images each, 84 × 84 as a rule.

train.csv and test.csv have the columns filename and label. The images lie in `train/<label>/` and `test/<label>/`, or
all in one folder `images/`. Classes are numbered in the order in which train.csv first names them.
"""

import csv
from importlib.resources import files as package_files
from pathlib import Path

from masil.data.images import Dataset
from masil.data.listed import Listed, listed_dataset, not_found
from masil.errors import DataError

_TITLE = "miniImageNet"
_FOLDERS = ("MINI-ImageNet", "mini-imagenet", "miniimagenet", "mini_imagenet")
_LISTS = "index_list/mini_imagenet"


def find_miniimagenet(root: Path) -> Path | None:
    """Give the folder that holds the images, or None."""
    layouts = (("images",), ("train", "test"))
    folders = (root / name for name in _FOLDERS)
    complete = (folder for folder in folders for parts in layouts if all((folder / part).is_dir() for part in parts))
    return next(complete, None)


def read_miniimagenet(root: Path) -> Dataset:
    """Read miniImageNet from `root`/MINI-ImageNet, the lists from there, its split/ or `root`/index_list."""
    if (folder := find_miniimagenet(root)) is None:
        raise not_found(
            _TITLE, root, ["MINI-ImageNet/train/ with MINI-ImageNet/test/", "MINI-ImageNet/images/"],
            "it is made of ImageNet, whose terms forbid passing it on; cut it with the lists and put it there.",
        )  # fmt: skip
    lists = _find_lists(root, folder)
    rows = {split: _rows(lists / f"{split}.csv") for split in ("train", "test")}
    order = {label: number for number, label in enumerate(dict.fromkeys(label for _, label in rows["train"]))}
    if strange := [label for _, label in rows["test"] if label not in order]:
        raise DataError(f"{lists / 'test.csv'} names the class '{strange[0]}', which train.csv does not.")
    listed: dict[str, list[Listed]] = {"train": [], "test": []}
    for split in listed:
        flat = not (folder / split).is_dir()  # all images lie in one folder, and not each in that of its class
        for file, label in rows[split]:
            listed[split].append((f"images/{file}" if flat else f"{split}/{label}/{file}", order[label]))
    words = wordnet_names()
    names = [words.get(label, label) for label in order]
    return listed_dataset("miniimagenet", _TITLE, root=folder, classes=names, **listed, beside=root / _LISTS)


def wordnet_names() -> dict[str, str]:
    """Give what WordNet calls the 100 classes, so that a table says 'house finch' and not 'n01532829'."""
    lines = (package_files("masil.data") / "wordnet_names.txt").read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def _find_lists(root: Path, folder: Path) -> Path:
    candidates = (folder, folder / "split", root / _LISTS)
    for candidate in candidates:
        if (candidate / "train.csv").is_file() and (candidate / "test.csv").is_file():
            return candidate
    raise DataError(
        f"train.csv and test.csv, the lists of {_TITLE}, are not there; looked in {', '.join(map(str, candidates))}."
    )


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [(row["filename"], row["label"]) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a list with the columns filename and label ({error}).") from error

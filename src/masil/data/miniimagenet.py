"""miniImageNet by the field's lists: 100 classes, 500 training and 100 test images each, 84 × 84 as a rule.

train.csv and test.csv have the columns filename and label. The images lie in `train/<label>/` and `test/<label>/`, or
all in one folder `images/`. Classes are numbered in the order in which train.csv first names them.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

from masil.data.images import Dataset
from masil.data.listed import Listed, listed_images, not_found
from masil.data.shots import standard_shots
from masil.data.wordnet import NAMES
from masil.errors import DataError

_TITLE = "miniImageNet"
_FOLDERS = ("MINI-ImageNet", "mini-imagenet", "miniimagenet", "mini_imagenet")
_LISTS = "index_list/mini_imagenet"


def find_miniimagenet(root: Path) -> Path | None:
    """Give the folder that holds the images, or None."""
    for folder in (root / name for name in _FOLDERS):
        if (folder / "images").is_dir() or ((folder / "train").is_dir() and (folder / "test").is_dir()):
            return folder
    return None


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
    train, test = (_listed(folder, split, rows[split], order) for split in ("train", "test"))
    names = tuple(NAMES.get(label, label) for label in order)
    train_images, test_images, notes = listed_images(_TITLE, folder, names, train, test)

    positions = {Path(file).name: position for position, file in enumerate(train_images.files)}

    def find(entry: str) -> int | None:
        return positions.get(entry.rpartition("/")[2])

    shots, more = standard_shots("miniimagenet", find, root / _LISTS)
    return Dataset("miniimagenet", names, train_images, test_images, shots, (*notes, *more))


def _find_lists(root: Path, folder: Path) -> Path:
    places = (folder, folder / "split", root / _LISTS)
    for place in places:
        if (place / "train.csv").is_file() and (place / "test.csv").is_file():
            return place
    raise DataError(
        f"train.csv and test.csv, the lists of {_TITLE}, are not there; looked in {', '.join(map(str, places))}."
    )


def _rows(path: Path) -> list[tuple[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [(row["filename"], row["label"]) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, KeyError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a list with the columns filename and label ({error}).") from error


def _listed(folder: Path, split: str, rows: Iterable[tuple[str, str]], order: dict[str, int]) -> Listed:
    """List the images where they lie: in a folder of their class, or all in one."""
    listed = Listed()
    flat = not (folder / split).is_dir()
    for file, label in rows:
        listed.add(f"images/{file}" if flat else f"{split}/{label}/{file}", order[label])
    return listed

"""CUB-200-2011 in its official layout: 200 birds, 5,994 training and 5,794 test images."""

from pathlib import Path

from masil.data.images import Dataset
from masil.data.listed import Listed, listed_dataset, not_found
from masil.errors import DataError

_TITLE = "CUB-200-2011"


def find_cub200(root: Path) -> Path | None:
    """Give the folder that holds images.txt, or None."""
    folder = root / "CUB_200_2011"
    return folder if (folder / "images.txt").is_file() else None


def read_cub200(root: Path) -> Dataset:
    """Read CUB-200-2011 from `root`/CUB_200_2011. The labels follow classes.txt, the images follow images.txt."""
    if (folder := find_cub200(root)) is None:
        raise not_found(
            _TITLE, root, ["CUB_200_2011/images.txt"], "get CUB_200_2011.tgz from "
            "https://data.caltech.edu/records/65de6-vp158 and unpack it there."
        )  # fmt: skip
    files, labels = _table(folder / "images.txt"), _table(folder / "image_class_labels.txt")
    training, classes = _table(folder / "train_test_split.txt"), _table(folder / "classes.txt")
    order = {number: label for label, number in enumerate(classes)}
    train: list[Listed] = []
    test: list[Listed] = []
    for image, file in files.items():
        if image not in labels or image not in training or labels[image] not in order:
            raise DataError(f"Image {image} of {folder / 'images.txt'} has no class or no split in the other lists.")
        (train if training[image] == "1" else test).append((f"images/{file}", order[labels[image]]))
    # '001.Black_footed_Albatross' is called 'Black footed Albatross'.
    names = [name.partition(".")[2].replace("_", " ") or name for name in classes.values()]
    return listed_dataset(
        "cub200", _TITLE, root=folder, classes=names, train=train, test=test, beside=root / "index_list" / "cub200"
    )


def _table(path: Path) -> dict[str, str]:
    """Read lines of a number and a value."""
    table = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}, a list of {_TITLE}, cannot be read ({error}). Unpack the data set again.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        key, _, value = line.strip().partition(" ")
        if not value:
            raise DataError(f"{path}, line {number}, should be a number and a value, but is '{line.strip()}'.")
        table[key] = value
    return table

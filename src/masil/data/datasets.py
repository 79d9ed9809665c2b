"""The data sets by name: where each is looked for, and how it is read."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from masil.data.characters import find_characters, read_characters
from masil.data.cifar100 import fetch_cifar100, find_cifar100, read_cifar100
from masil.data.cub200 import find_cub200, read_cub200
from masil.data.images import Dataset
from masil.data.miniimagenet import find_miniimagenet, read_miniimagenet
from masil.data.omniglot import find_omniglot, read_omniglot
from masil.data.photos import read_folder
from masil.errors import DataError, lookup
from masil.registry import Registry
from masil.storage import cache_folder


@final
@dataclass(frozen=True)
class DatasetSource:
    """How a data set is found in the folder of data sets, read from there, and brought there if it can be."""

    find: Callable[[Path], Path | None]
    read: Callable[[Path], Dataset]
    fetch: Callable[[Path], None] | None = None


OWN: Mapping[str, DatasetSource] = {
    "characters": DatasetSource(find_characters, read_characters),
    "cifar100": DatasetSource(find_cifar100, read_cifar100, fetch_cifar100),
    "cub200": DatasetSource(find_cub200, read_cub200),
    "miniimagenet": DatasetSource(find_miniimagenet, read_miniimagenet),
    "omniglot": DatasetSource(find_omniglot, read_omniglot),
}
DATASETS: Registry[DatasetSource] = Registry("masil.datasets", OWN)


def load(name: str | Path, root: Path | str | None = None, download: bool = False, skip_bad: bool = False) -> Dataset:
    """Read the data set called `name`, or any folder of images if `name` is a path.

    `root` is the folder of data sets: else the variable MASIL_DATA, else masil's cache. With `download`, what is not
    there may be fetched. With `skip_bad`, the unreadable files of a folder of images are left out and noted.
    """
    if isinstance(name, Path) or (name not in DATASETS and _is_path(name)):
        return read_folder(Path(name).expanduser(), skip_bad=skip_bad)
    source, folder = lookup("data set", name, DATASETS), data_root(root)
    if download and source.fetch is not None:
        source.fetch(folder)
    elif root is not None and not folder.is_dir():
        raise DataError(f"There is no folder {folder}, in which the data set '{name}' was to be looked for.")
    return source.read(folder)


def locate(name: str, root: Path | str | None = None) -> Path | None:
    """Say where the data set called `name` was found, or None."""
    return lookup("data set", name, DATASETS).find(data_root(root))


def data_root(root: Path | str | None = None) -> Path:
    """Give the folder of data sets: `root`, else MASIL_DATA, else masil's cache."""
    chosen = root or os.environ.get("MASIL_DATA")
    return Path(chosen).expanduser() if chosen else cache_folder("data")


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.startswith((".", "~")) or Path(name).is_dir()

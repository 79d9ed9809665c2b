"""What lies in a folder of class folders: which classes, which files, in an order people expect."""

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from masil.errors import DataError

Tree = dict[str, list[str]]  # class → its files, as paths from the folder of the data set

_SYSTEM_FILES = {"thumbs.db", "desktop.ini"}
_SYSTEM_FOLDERS = {"__macosx"}


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
        with os.scandir(folder) as found:
            entries = {entry.name: _is_folder(entry) for entry in found if not entry.name.startswith(".")}
    except OSError as error:
        raise DataError(f"The folder {folder} cannot be listed ({error.strerror}).") from error
    folders = [name for name, inner in entries.items() if inner and name.casefold() not in _SYSTEM_FOLDERS]
    files = [name for name, inner in entries.items() if not inner and name.casefold() not in _SYSTEM_FILES]
    return sorted(folders, key=natural), sorted(files, key=natural)


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort as people do: 'img2' before 'img10', capitals beside small letters."""
    parts = re.split(r"(\d+)", same_name(name))
    return [(int(part), "") if odd % 2 else (-1, part) for odd, part in enumerate(parts)], name


def same_name(name: str) -> str:
    """Fold away what people, and some file systems, do not see: case, and how an accent is written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def alike(names: Sequence[str]) -> list[list[str]]:
    """Group the names that people would take for one another; names that stand alone are left out."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(same_name(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


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

"""What the commands for people with photos share: models, lists of files, and remarks on a folder of photos."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from masil.cli.options import refuse_unwritable
from masil.cli.output import say, shown
from masil.errors import InputError, StorageError
from masil.hardware import import_torch

if TYPE_CHECKING:
    from masil.data import Photos
    from masil.learner import Masil


def read_noted(
    folder: Path, *, part: Literal["train", "test"] = "train", skip_bad: bool = False, json: bool = False
) -> Photos:
    """Read a folder of photos, and say what was left out and, of those to learn from, which classes have one photo."""
    from masil.data import read_photos

    photos = read_photos(folder, part=part, skip_bad=skip_bad)
    notes = list(photos.notes)
    single = [name for name, count in photos.counts.items() if count == 1] if part == "train" else []
    if single:
        which = f"'{shown(single[0])}' has" if len(single) == 1 else f"{len(single)} classes have"
        notes.append(f"{which} one photo only; with five a class is recognised far more often.")
    for note in notes:
        say(f"Note: {note}", json=json)
    return photos


def listed_files(arguments: Sequence[str]) -> list[Path]:
    """Give the files that arguments name, of which there must be one."""
    files = list(_listed(arguments))
    if not files:
        raise InputError(f"There is no photo in {', '.join(arguments)}.")
    return files


def _listed(arguments: Sequence[str]) -> Iterator[Path]:
    """Give what each argument stands for: a file, all of a folder, or, for '-', a path a line from standard input."""
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
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts):
            yield file


def load_model(path: Path, device: str) -> Masil:
    """Read a model, refusing one that takes no images."""
    import_torch()
    from masil.learner import Masil

    model = Masil.load(path, device=device)
    if model.encoder_.backbone is None:
        raise InputError(f"The model {path} takes activations and not photos; use it from Python.")
    return model


def refuse_overwriting(path: Path, force: bool) -> None:
    """Refuse to replace a file unasked, or to write where that is impossible, before any work is done."""
    if path.is_dir():
        raise StorageError(f"{path} is a folder; give the name of a file.")
    if path.exists() and not force:
        raise StorageError(f"{path} exists already; choose another name, or overwrite it with --force.")
    refuse_unwritable(path.parent, path)

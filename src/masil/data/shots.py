"""The field's standard shots: lists of training images, one file for each session.

`session_1.txt` is the base session, which here is session 0; `session_2.txt` is session 1, and so on.
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from masil.errors import DataError


def read_shots(folder: Path, find: Callable[[str], int | None], labels: Tensor) -> dict[int, Tensor] | None:
    """Read the shots of session 1, 2, … as positions among the training images, or give None if there are no lists.

    `find` gives the position of an image by what the lists call it, or None. The positions of a session ascend; the
    order of a list means nothing. No class may come in two sessions, and the list of the base session, if there is
    one, must hold all training images of its classes, since all are trained on.
    """
    lists = _lists(folder)
    if not lists:
        return None
    sessions = {number: _read(path, find) for number, path in lists.items()}
    taught: dict[int, int] = {}
    for number, positions in sessions.items():
        for label in sorted(set(labels[positions].tolist())):
            if label in taught:
                raise DataError(f"{lists[number]} holds images of class {label}, as {lists[taught[label]]} does.")
            taught[label] = number
    base = sessions.pop(0, None)
    if base is not None:
        counts = torch.bincount(labels)
        if missing := sum(int(counts[label]) for label in set(labels[base].tolist())) - len(base):
            raise DataError(f"{lists[0]} leaves out {missing} of the training images of its classes.")
    return sessions or None


def _lists(folder: Path) -> dict[int, Path]:
    """Find the lists by session number, in order and without a gap."""
    found = {
        int(match[1]) - 1: path
        for path in folder.glob("session_*.txt")
        if (match := re.fullmatch(r"session_([1-9]\d*)\.txt", path.name))
    }
    for number in range(1, max(found, default=0) + 1):
        if number not in found:
            raise DataError(f"{folder} has {found[max(found)].name} but not session_{number + 1}.txt.")
    return dict(sorted(found.items()))


def _read(path: Path, find: Callable[[str], int | None]) -> Tensor:
    lines: dict[int, int] = {}  # position → line
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a list of images ({error}).") from error
    for line, entry in enumerate(content.splitlines(), start=1):
        if not (image := entry.strip()):
            continue
        position = find(image)
        if position is None:
            raise DataError(f"{path}, line {line}, names the image '{image}', which is not among the training images.")
        if position in lines:
            raise DataError(f"{path}, line {line}, names the image '{image}' again, after line {lines[position]}.")
        lines[position] = line
    return torch.tensor(sorted(lines), dtype=torch.int64)

"""Class names as they come in, strings or whole numbers, and the places of a session's classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from masil.errors import InputError

Label = str | int


def read_labels(labels: Any, n: int, known: Sequence[Label] = ()) -> list[Label]:
    """Give one label for each of n images, all strings or all whole numbers, of the kind that is known already."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise InputError(f"Labels must be a sequence with one label for each image, but are {labels!r}.")
    if isinstance(labels, Tensor | np.ndarray) and labels.ndim != 1:
        raise InputError(f"Labels must be [n], one for each image, but have the shape {list(labels.shape)}.")
    found = [_plain(place, label) for place, label in enumerate(labels)]
    if len(found) != n:
        raise InputError(f"There are {n} images but {len(found)} labels.")
    first = next(iter(known), found[0] if found else None)
    for place, label in enumerate(found):
        if type(label) is not type(first):
            raise InputError(
                f"The label of image {place} is {label!r} but others are like {first!r}; "
                "classes are named either by strings or by whole numbers, not by both."
            )
    return found


def read_label(label: Any) -> Label:
    """Give one class's name."""
    return _plain(None, label)


def places(labels: Sequence[Label], classes: Sequence[Label]) -> Tensor:
    """Give the place of each label among `classes`, int64 [n]."""
    place = {label: at for at, label in enumerate(classes)}
    return torch.tensor([place[label] for label in labels], dtype=torch.int64)


def as_array(labels: Sequence[Label]) -> np.ndarray[Any, Any]:
    """Give labels as an array of strings or of int64."""
    return np.array(labels, dtype=np.int64 if labels and isinstance(labels[0], int) else np.str_)


def _plain(place: int | None, label: Any) -> Label:
    if isinstance(label, np.ndarray | np.generic | Tensor) and getattr(label, "ndim", 1) == 0:
        label = label.item()
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    if isinstance(label, str) and label:
        return str(label)
    of = "The class name" if place is None else f"The label of image {place}"
    raise InputError(
        f"{of} is {label!r} ({type(label).__name__}); classes are named by strings that are not empty, "
        "or by whole numbers."
    )

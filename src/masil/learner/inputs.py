"""Activations, labels and single images as people bring them, in the one form the learner works with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from masil.data import Images
from masil.errors import InputError

Label = str | int


def read_activations(activations: Any, features: int | None) -> Tensor:
    """Give activations as float32 [n d], finite and >= 0, of the width that is known already."""
    try:
        rows = torch.as_tensor(np.asarray(activations) if isinstance(activations, list | tuple) else activations)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Without a backbone the input must be activations [n d], but is a {type(activations).__name__}; "
            "give Masil a backbone if these are images."
        ) from error
    if rows.ndim != 2 or rows.is_complex() or rows.dtype == torch.bool:
        raise InputError(
            f"Without a backbone the input must be activations [n d], but has the shape {list(rows.shape)} and type "
            f"{rows.dtype}; give Masil a backbone if these are images."
        )
    rows = rows.detach().to("cpu", torch.float32)
    if features is not None and rows.shape[1] != features:
        raise InputError(
            f"The activations have {rows.shape[1]} features but the model has learnt from {features}; "
            "were they computed with the same backbone?"
        )
    if bool((wrong := ~rows.isfinite().all(1)).any()):
        raise InputError(f"The activations of image {int(wrong.nonzero()[0])} are infinite or not a number.")
    if bool((wrong := (rows < 0).any(1)).any()):
        raise InputError(
            f"The activations of image {int(wrong.nonzero()[0])} go down to {float(rows.min()):.3g}, but concepts "
            "need activations >= 0; take them after a ReLU, or split them into [relu(a), relu(−a)]."
        )
    return rows


def as_batch(image: Any, activations: bool) -> Any:
    """Put one image, or the activations of one, where many are expected."""
    dimensions = getattr(image, "ndim", None)
    if isinstance(image, Images) or dimensions == (2 if activations else 4):
        return image
    if dimensions is not None:
        return image[None]
    return image if isinstance(image, list | tuple) and not activations else [image]


def read_labels(labels: Any, n: int, known: Sequence[Label] = ()) -> list[Label]:
    """Give one label for each of n images, all strings or all whole numbers, of the kind that is known already."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise InputError(f"Labels must be a sequence with one label for each image, but are {labels!r}.")
    if isinstance(labels, Tensor | np.ndarray) and labels.ndim != 1:
        raise InputError(f"Labels must be [n], one for each image, but have the shape {list(labels.shape)}.")
    names = [read_label(label, f"The label of image {position}") for position, label in enumerate(labels)]
    if len(names) != n:
        raise InputError(f"There are {n} images but {len(names)} labels.")
    first = next(iter(known), names[0] if names else None)
    for position, label in enumerate(names):
        if type(label) is not type(first):
            raise InputError(
                f"The label of image {position} is {label!r} but others are like {first!r}; "
                "classes are named either by strings or by whole numbers, not by both."
            )
    return names


def read_label(label: Any, title: str = "The class name") -> Label:
    """Give one class's name as a string or a whole number; `title` is what it is called where it is neither."""
    if isinstance(label, np.ndarray | np.generic | Tensor) and getattr(label, "ndim", 1) == 0:
        label = label.item()
    if isinstance(label, int) and not isinstance(label, bool):
        return label
    if isinstance(label, str) and label:
        return str(label)
    raise InputError(
        f"{title} is {label!r} ({type(label).__name__}); classes are named by strings that are not empty, "
        "or by whole numbers."
    )


def class_codes(labels: Sequence[Label], classes: Sequence[Label]) -> Tensor:
    """Give the position of each label among `classes`, int64 [n]."""
    code = {label: position for position, label in enumerate(classes)}
    return torch.tensor([code[label] for label in labels], dtype=torch.int64)


def as_array(labels: Sequence[Label]) -> np.ndarray[Any, Any]:
    """Give labels as an array of strings or of int64."""
    return np.array(labels, dtype=np.int64 if labels and isinstance(labels[0], int) else np.str_)

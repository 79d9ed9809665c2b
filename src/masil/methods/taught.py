"""What every method owes its callers: classes that come in order, activations that fit, one vector per class."""

from typing import TypeVar

import torch
from torch import Tensor

from masil.collapse import class_means as class_means
from masil.errors import InputError

T = TypeVar("T")


def taught(state: T | None) -> T:
    """Give what `fit` has learnt, or say that it has not been called."""
    if state is None:
        raise InputError("Nothing has been taught yet; call `fit` with the base session first.")
    return state


def new_classes(activations: Tensor, labels: Tensor, known: int = 0) -> int:
    """Count the classes of a session, which must be `known`, `known` + 1, … with at least one image each."""
    if activations.ndim != 2 or labels.shape != activations.shape[:1] or not len(labels):
        raise InputError(
            f"A session needs activations [n d] and labels [n], n >= 1, "
            f"but they have the shapes {list(activations.shape)} and {list(labels.shape)}."
        )
    if int(labels.min()) < known:
        raise InputError(f"Class {int(labels.min())} has been taught before; {known} classes are known.")
    counts = torch.bincount(labels - known)
    if bool((counts == 0).any()):
        missing = known + int((counts == 0).nonzero()[0])
        raise InputError(f"The next class is {missing}, but there is no image of it; classes come in order.")
    return len(counts)


def check_features(activations: Tensor, features: int) -> None:
    """Refuse activations of another width than those of the base session."""
    if activations.ndim != 2 or activations.shape[1] != features:
        raise InputError(
            f"The activations have the shape {list(activations.shape)}, but the base session had {features} features; "
            f"were they computed with the same backbone?"
        )


def check_total(total: int | None, known: int) -> int:
    """Give the number of classes that will ever come, which must be told and hold those that are `known`."""
    if total is None:
        raise InputError("This method must know how many classes will ever come; give it `total`.")
    if known > total:
        raise InputError(f"There is room for {total} classes in all, but there are {known} now; give a larger `total`.")
    return total

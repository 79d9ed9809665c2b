"""How signed activations become non-negative ones, which is all that concepts can be made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from masil.errors import InputError, lookup


def keep(a: Tensor) -> Tensor:
    """Leave a [n d …] as it is: it is promised to be >= 0."""
    return a


def relu(a: Tensor) -> Tensor:
    """Cut a [n d …] off at zero. What is negative is lost."""
    return torch.relu(a)


def split(a: Tensor) -> Tensor:
    """Give [relu(a), relu(−a)], [n 2d …]. Nothing is lost: the difference of the halves is a."""
    return torch.cat((torch.relu(a), torch.relu(-a)), 1)


NON_NEGATIVE: dict[str, Callable[[Tensor], Tensor]] = {"keep": keep, "relu": relu, "split": split}


def way_to_non_negative(way: str, on_noise: Tensor, name: str) -> Callable[[Tensor], Tensor]:
    """Look up a way, and refuse "keep" for a model that gives negative activations on noise already."""
    found = lookup("way to make activations non-negative", way, NON_NEGATIVE)
    if way == "keep" and float(on_noise.min()) < 0:
        raise InputError(
            f"The module '{name}' gives negative activations ({float(on_noise.min()):.3g} on noise), but concepts need "
            "activations >= 0. Choose non_negative='relu', which cuts them off, or 'split', which keeps both signs."
        )
    return found

"""How signed activations become non-negative ones, which is all that concepts can be made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


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

"""Room for classes to come: virtual prototypes that base training keeps free (FACT, Zhou et al. 2022)."""

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse.frames import orthogonal_frame


def virtual_prototypes(count: int, features: int) -> Tensor:
    """Give `count` unit vectors [r d], orthogonal if there is room for that, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    if 0 < count <= features:
        return orthogonal_frame(count, features, generator)
    return functional.normalize(torch.randn(count, features, generator=generator))


def reserve(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """Give the mean loss that keeps a prototype near every class: without class y, the best prototype should win.

    The logits [n k+r] are those of k classes and then of r prototypes.
    """
    return hiding(logits, labels, k + logits[:, k:].argmax(1))


def reserve_mixed(logits: Tensor, k: int) -> Tensor:
    """Give the mean loss of images mixed of two classes: their best prototype should win, and without it a class."""
    guess = k + logits[:, k:].argmax(1)
    return functional.cross_entropy(logits, guess) + hiding(logits, guess, logits[:, :k].argmax(1))


def hiding(logits: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:
    """Give the cross-entropy to `labels` when each row's class `hidden` is out of the race."""
    return functional.cross_entropy(logits.scatter(1, hidden[:, None], -1e9), labels)

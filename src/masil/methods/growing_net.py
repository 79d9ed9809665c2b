"""The network of the replay methods: a map of activations, and a classifier with one more row for every class."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.descent import descend
from masil.methods.learnt_map import BATCH, LearntMap

SCALE = 16.0  # of the products with unit embeddings
SESSION_STEPS, SESSION_RATE = 100, 0.1


@final
class GrowingNet:
    """Logits s w_j · z + b_j with z = unit(g(a)): a whole network where the backbone is frozen and shared."""

    def __init__(self, activations: Tensor, *, centred: bool = True) -> None:
        """Start without classes, with a map that is centred on these activations, or on 0."""
        self.map = LearntMap(activations, centred=centred)
        self.rows = torch.empty(0, activations.shape[1])  # w [k d]
        self.bias = torch.empty(0)  # b [k]
        # What activations >= 0 have in common: rows that held it would be near every image, and say yes to all of them.
        self.common = torch.zeros(activations.shape[1]) if centred else self.embed(activations).mean(0)  # [d]

    def grow(self, rows: Tensor, bias: float = 0.0) -> None:
        """Append classes that start with these rows, at unit length: class means, where originals draw at random."""
        self.rows = torch.cat([self.rows, functional.normalize(rows - self.common)])
        self.bias = torch.cat([self.bias, torch.full((len(rows),), bias)])

    def embed(self, activations: Tensor) -> Tensor:
        """Give unit embeddings z [n d]."""
        return functional.normalize(self.map(activations))

    def logits(self, activations: Tensor) -> Tensor:
        """Give one number per class, [n k]."""
        return SCALE * self.embed(activations) @ self.rows.T + self.bias


def train_session(
    learnt: list[Tensor], loss: Callable[[Tensor], Tensor], rows: int, generator: torch.Generator, share: float = 1.0
) -> None:
    """Lower the loss of a session; `share` makes the steps smaller, for a last touch."""
    rate = SESSION_RATE * share
    descend(learnt, loss, rows, steps=SESSION_STEPS, batch=BATCH // 2, rate=rate, generator=generator)

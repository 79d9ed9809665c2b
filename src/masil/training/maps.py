"""A base session on stored activations: what a loss would teach a backbone it teaches a linear map of activations.

The methods of the field train their whole backbone. Where all methods share one frozen backbone, each trains a map M of
its activations instead, which starts as the identity: untrained, it is the nearest class mean by cosine of centred
activations, so training is judged by what it adds to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.training.loss import BaseLoss

MOMENTUM = 0.9
# Chosen among rates of .03 to 10 and 5 to 20 epochs on base classes of CUB-200 that were given as few-shot ones.
BATCH, EPOCHS, RATE = 256, 10, 0.1


@final
@dataclass
class LinearFeatures:
    """g(a) = M (a/‖a‖ − m): m is the mean of a/‖a‖ over the base session, or 0; M is learnt."""

    centre: Tensor  # m [d]
    matrix: Tensor  # Mᵀ [d d]

    @classmethod
    def identity(cls, activations: Tensor, *, centred: bool = True) -> LinearFeatures:
        """Centre on these activations, or not at all; M is the identity."""
        mean = functional.normalize(activations.float()).mean(0)
        return cls(mean if centred else torch.zeros_like(mean), torch.eye(len(mean)))

    def __call__(self, activations: Tensor) -> Tensor:
        """Map activations [n d]."""
        return self.centred(activations) @ self.matrix

    def centred(self, activations: Tensor) -> Tensor:
        """Give a/‖a‖ − m, what M is multiplied with."""
        return functional.normalize(activations.float()) - self.centre


def train_map(
    activations: Tensor, labels: Tensor, loss: BaseLoss, *, seed: int, g: LinearFeatures | None = None
) -> LinearFeatures:
    """Train a map of the activations of classes 0 … k − 1 with a loss, whose class vectors begin at the class means.

    `g` is what training starts from, the identity of centred activations if not given. The loss is built here and
    afterwards holds the class vectors that were learnt beside the map.
    """
    g = LinearFeatures.identity(activations) if g is None else g
    generator = torch.Generator().manual_seed(seed)
    classes = int(labels.max()) + 1
    loss.build(len(g.centre), loss.virtual_classes(classes), generator)
    loss.start_at(class_means(g(activations), labels))

    def of_batch(rows: Tensor) -> Tensor:
        x, targets = loss.views(g.centred(activations[rows]), labels[rows], classes, generator)
        value: Tensor = loss(x @ g.matrix, targets, targets, torch.ones(len(targets)))
        return value

    learnt = [g.matrix, *loss.parameters()]
    steps = EPOCHS * -(-len(labels) // BATCH)
    minimise_by_sgd(learnt, of_batch, len(labels), steps=steps, batch=BATCH, rate=RATE, generator=generator)
    return g


def minimise_by_sgd(
    parameters: Iterable[Tensor],
    loss: Callable[[Tensor], Tensor],
    rows: int | Tensor,
    *,
    steps: int,
    batch: int,
    rate: float,
    generator: torch.Generator,
) -> None:
    """Lower `loss`, a function of the rows of a batch, by SGD; the rate falls from `rate` to 0 along a cosine.

    `rows` is their number, or the labels of all: then a batch has about as many rows of every class.
    """
    learnt = [parameter.requires_grad_() for parameter in parameters]
    optimiser = torch.optim.SGD(learnt, rate, momentum=MOMENTUM, nesterov=True, weight_decay=5e-4)
    drawn = balanced_batches if isinstance(rows, Tensor) else shuffled_batches
    for step, chosen in enumerate(drawn(rows, batch, steps, generator)):  # type: ignore[arg-type]
        optimiser.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        loss(chosen).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for parameter in learnt:
        parameter.requires_grad_(False)


def minimise_convex(parameter: Tensor, loss: Callable[[], Tensor]) -> None:
    """Take `parameter` to the minimum of a convex `loss` by L-BFGS; nothing is random and no rate is chosen."""
    optimiser = torch.optim.LBFGS(
        [parameter.requires_grad_()], max_iter=100, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    parameter.requires_grad_(False)


def balanced_batches(labels: Tensor, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `steps` batches of row numbers, drawn so that every class is as likely as any other."""
    weights = 1 / torch.bincount(labels)[labels]
    for _ in range(steps):
        yield torch.multinomial(weights, min(size, len(labels)), replacement=True, generator=generator)


def shuffled_batches(rows: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `steps` batches of at most `size` row numbers, shuffled, every row once before any comes again."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if not len(left):
            left = torch.randperm(rows, generator=generator)
        yield left[:size]
        left = left[size:]

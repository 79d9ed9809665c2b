"""Sessions that descend a loss, at a rate chosen on base classes that play novel, and never unnoticed past all bounds.

A rate that suits one backbone makes another's sessions diverge, and a row that fell says nothing about its method. So
the loss is looked at before a session and after it. Where it has grown, or is no number, everything is put back and the
session is played again at half the rate; the record says so.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from masil.methods.method import Samples, Task, state
from masil.methods.tuning import Chooses
from masil.training import balanced_batches, minimise_by_sgd

TRIES = 10  # the last at a thousandth of the rate
GROWTH = 1.001  # a loss that began at its minimum may end a little above it; features that collapse raise it by more


@dataclass(kw_only=True)
class Descends(Chooses):
    """A method whose sessions descend a loss."""

    descents: int = state()  # since the base session
    lowered: dict[str, float] = state()  # descent, counted from 1 -> the rate that held, where it was not the first
    generator: torch.Generator = state()

    def choose(self, base: Samples, task: Task) -> None:
        """Choose what is open, and begin to count."""
        super().choose(base, task)
        self.descents, self.lowered = 0, {}
        self.generator = task.generator()

    def steadily(
        self, learnt: Sequence[Tensor], train: Callable[[float], None], loss: Callable[[], Tensor], rate: float
    ) -> None:
        """Let `train` change what is learnt at a rate at which the loss does not grow, and note the rate."""
        held = descend_steadily(learnt, train, loss, rate, generator=self.generator)
        self.descents = (self.descents or 0) + 1
        if held < rate:
            self.lowered = {**(self.lowered or {}), str(self.descents): held}

    def descend(
        self,
        learnt: Sequence[Tensor],
        loss: Callable[[Tensor], Tensor],
        labels: Tensor,
        *,
        steps: int,
        batch: int,
        rate: float,
    ) -> None:
        """Lower a loss of row numbers by SGD, on batches with about as many rows of every class."""
        probes = list(balanced_batches(labels, batch, 4, torch.Generator().manual_seed(0)))

        def train(rate: float) -> None:
            minimise_by_sgd(learnt, loss, labels, steps=steps, batch=batch, rate=rate, generator=self.generator)

        self.steadily(learnt, train, lambda: torch.stack([loss(rows) for rows in probes]).mean(), rate)

    def remarks(self) -> dict[str, Any]:
        """Say which descents had to be played again, and at what rate."""
        lowered = {"diverged, so played at a lower rate": self.lowered} if self.lowered else {}
        return {**super().remarks(), **lowered}


def descend_steadily(
    learnt: Sequence[Tensor],
    train: Callable[[float], None],
    loss: Callable[[], Tensor],
    rate: float,
    generator: torch.Generator,
) -> float:
    """Train, and where the loss has grown or is no number, put all back and train at half the rate.

    Give the rate that held; 0, and nothing learnt, if none did. A loss that draws random numbers draws the same ones
    before and after, and none of those that training draws.
    """
    kept, state_before = [tensor.detach().clone() for tensor in learnt], generator.get_state()

    def judged() -> float:
        state_now = generator.get_state()
        generator.set_state(state_before)
        with torch.no_grad():
            value = float(loss())
        generator.set_state(state_now)
        return value

    before = judged()
    for _ in range(TRIES):
        train(rate)
        after = judged()
        if math.isfinite(after) and after <= GROWTH * max(before, 1e-3):
            return rate
        with torch.no_grad():
            for tensor, value in zip(learnt, kept, strict=True):
                tensor.copy_(value)
        generator.set_state(state_before)
        rate /= 2
    return 0.0


def take_step(
    optimiser: torch.optim.Optimizer, loss: Tensor, rate: torch.optim.lr_scheduler.LRScheduler | None = None
) -> None:
    """Take a step down the slope of a loss, and one of the schedule of the rate, if there is one."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    if rate is not None:
        rate.step()

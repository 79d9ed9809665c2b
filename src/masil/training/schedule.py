"""The learning rate as a fraction of its peak, a pure function of how far training is."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from masil.errors import InputError, lookup

# From 1 at t = 0 to 0 at t = 1.
SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
}


@final
@dataclass(frozen=True)
class Schedule:
    """Warm up linearly, then fall from 1 to `final` along `shape`, once or with warm restarts (SGDR).

    Of `cycles` cycles each is `growth` times as long as the one before; SGDR (Loshchilov & Hutter 2017) is the cosine
    with more than one.
    """

    shape: str = "linear"
    warmup: float = 0.05  # share of all steps
    final: float = 0.0  # fraction of the peak reached at the end of a cycle
    cycles: int = 1
    growth: float = 2.0

    def __post_init__(self) -> None:
        lookup("schedule", self.shape, SHAPES)
        if not 0 <= self.warmup < 1:
            raise InputError(f"The warm-up takes a share {self.warmup} of all steps, but must lie in [0, 1).")
        if not 0 <= self.final <= 1:
            raise InputError(f"The learning rate ends at {self.final} of its peak, but must lie in [0, 1].")
        if self.cycles < 1 or self.growth <= 0:
            raise InputError(f"A schedule needs cycles >= 1 and growth > 0, not {self.cycles} and {self.growth}.")

    def factor(self, step: int, steps: int) -> float:
        """Give the fraction of the peak for step 0 … steps − 1; the middle of the step is what counts."""
        progress = (step + 0.5) / steps
        if progress < self.warmup:
            return progress / self.warmup
        height = SHAPES[self.shape](self._within_cycle((progress - self.warmup) / (1 - self.warmup)))
        return self.final + (1 - self.final) * height

    def _within_cycle(self, progress: float) -> float:
        """Map progress over all cycles to progress in the current one."""
        lengths = [self.growth**i for i in range(self.cycles)]
        position = progress * sum(lengths)
        for length in lengths[:-1]:
            if position < length:
                return position / length
            position -= length
        return min(1.0, position / lengths[-1])

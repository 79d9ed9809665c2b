"""How much to trust concepts against shots: the prior's weight, measured on base classes that play novel ones.

For a class with true mean μ, let m be the mean embedding of k shots and r that of their reconstructions. The weight
that brings (1 − a) m + a r closest to μ over many classes and draws is

    a = Σ (m − μ)·(m − r) / Σ ‖m − r‖².

μ is taken from images that are not among the shots: its own noise is then independent of m − r and leaves the numerator
right on average. The classes are held out of the concept bank that reconstructs them, as novel ones are.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

SHOTS = (1, 2, 5, 10, 20)
DRAWS = 16  # of k shots from each class
FALLBACK = 0.3  # where no base class has two images


@final
@dataclass(frozen=True)
class PriorWeight:
    """The concept prior's share a of a class vector, for classes of 1, 2, 5, … shots."""

    shots: tuple[int, ...]
    weights: tuple[float, ...]

    def at(self, k: int) -> float:
        """Give a for k shots, linear in 1/k between the measured ones, towards 0 beyond the last.

        With ever more shots m becomes μ, and there is nothing left for the prior to say.
        """
        if k <= self.shots[0]:
            return self.weights[0]
        index = bisect_left(self.shots, k)
        right, low = (1 / self.shots[index], self.weights[index]) if index < len(self.shots) else (0.0, 0.0)
        left, high = 1 / self.shots[index - 1], self.weights[index - 1]
        return low + (high - low) * (1 / k - right) / (left - right)


def measure(embeddings: Tensor, reconstructed: Tensor, labels: Tensor, *, seed: int) -> PriorWeight:
    """Measure a on base images: their embeddings [n d], those of their reconstructions [n d], their classes [n].

    The reconstructions must come from banks that have not seen the image's class.
    """
    generator = torch.Generator().manual_seed(seed)
    above, below = dict.fromkeys(SHOTS, 0.0), dict.fromkeys(SHOTS, 0.0)
    for label in torch.unique(labels).tolist():
        rows = labels == label
        x, r = embeddings[rows], reconstructed[rows]
        for k in SHOTS:
            if k < len(x):
                top, bottom = _draws(x, r, k, generator)
                above[k] += top
                below[k] += bottom
    shots = tuple(k for k in SHOTS if below[k] > 0)
    if not shots:
        return PriorWeight((1,), (FALLBACK,))
    return PriorWeight(shots, tuple(min(max(above[k] / below[k], 0.0), 1.0) for k in shots))


def _draws(x: Tensor, r: Tensor, k: int, generator: torch.Generator) -> tuple[float, float]:
    """Sum (m − μ)·(m − r) and ‖m − r‖² over draws of k of a class's n images."""
    n = len(x)
    chosen = torch.rand(DRAWS, n, generator=generator).argsort(1) < k  # k of every row
    m, of_r = chosen.float() @ x / k, chosen.float() @ r / k
    rest = (~chosen).float() @ x / (n - k)
    apart = m - of_r
    return float(((m - rest) * apart).sum()), float(apart.square().sum())

"""Classes remembered as Gaussians: a mean and a factor of the covariance, from which features are drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.collapse import class_means
from masil.protocol import by_class


@final
@dataclass
class ClassGaussians:
    """Class c is N(μ_c, F_cᵀ F_c). Its factor [r_c d] has a row for each direction in which the class is spread."""

    means: Tensor  # μ [k d]
    factors: list[Tensor]

    @classmethod
    def fit(cls, rows: Tensor, labels: Tensor, rank: int | None = None) -> ClassGaussians:
        """Take the classes 0 … k − 1 from their rows, of each covariance the `rank` largest directions."""
        means = class_means(rows, labels)
        parts = by_class(labels, len(means))
        return cls(means, [covariance_factor(rows[positions], rank) for positions in parts])

    def add(self, means: Tensor, factors: Sequence[Tensor]) -> None:
        """Append classes."""
        self.means = torch.cat([self.means, means])
        self.factors.extend(factors)

    def sample(
        self, each: int, generator: torch.Generator, classes: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw `each` rows of every class, or of those in `classes`; give them with their labels."""
        chosen = list(range(len(self.means)) if classes is None else classes)
        drawn = [
            self.means[label] + torch.randn(each, len(self.factors[label]), generator=generator) @ self.factors[label]
            for label in chosen
        ]
        return torch.cat(drawn), torch.tensor(chosen).repeat_interleave(each)


def covariance_factor(rows: Tensor, rank: int | None = None) -> Tensor:
    """Give F [r d] with FᵀF the covariance of the rows [n d], or its best approximation of that rank."""
    deviations = (rows - rows.mean(0)) / max(1, len(rows) - 1) ** 0.5
    return reduced(deviations, rank if rank is not None else max(0, len(rows) - 1))


def mixed_factor(factors: Sequence[Tensor], weights: Tensor, rank: int | None = None) -> Tensor:
    """Give the factor of Σ_j w_j F_jᵀF_j, its best approximation where `rank` is smaller."""
    joined = torch.cat([weight.sqrt() * factor for weight, factor in zip(weights, factors, strict=True)])
    return reduced(joined, rank)


def reduced(factor: Tensor, rank: int | None = None) -> Tensor:
    """Give the principal rows of a factor [r d], longest first, at most `rank`: the same covariance, or nearly."""
    _, lengths, directions = torch.linalg.svd(factor, full_matrices=False)
    most = len(lengths) if rank is None else min(rank, len(lengths))
    principal: Tensor = lengths[:most, None] * directions[:most]
    return principal

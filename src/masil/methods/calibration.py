"""Class statistics of a few shots, calibrated by those of similar base classes (Goswami et al., 2024).

Five shots give a poor mean and no covariance. Base classes that resemble a new class have both, so it borrows from each
base class b to the degree softmax_b(τ cos(p, p_b)).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means

SHARPNESS = 16.0  # τ


def similarity(means: Tensor, base: Tensor, sharpness: float = SHARPNESS) -> Tensor:
    """Give softmax(τ cos) of new means [k d] to base means [b d], centred on the base classes, [k b].

    Activations are non-negative, so all cosines are high and close, and their softmax is flat; the means are therefore
    compared after the mean of the base classes is taken off.
    """
    centre = base.mean(0)
    cosines = functional.normalize(means - centre) @ functional.normalize(base - centre).T
    return torch.softmax(sharpness * cosines, 1)


def calibrated_means(means: Tensor, base: Tensor, keep: float) -> Tensor:
    """Give `keep` of each new mean's direction and 1 − `keep` of that of the base means it resembles."""
    borrowed = functional.normalize(similarity(means, base) @ functional.normalize(base))
    return functional.normalize(keep * functional.normalize(means) + (1 - keep) * borrowed)


def scatter(rows: Tensor, labels: Tensor, known: int = 0) -> list[Tensor]:
    """Give a triangular factor F of each class's covariance: Fᵀ F is the unbiased estimate, 0 of a class of one row.

    It has no more rows than the class has images, and says nothing of them but their covariance.
    """
    means = class_means(rows, labels, known)
    factors = []
    for offset, mean in enumerate(means):
        members = rows[labels == known + offset]
        factors.append(torch.linalg.qr((members - mean) / max(1, len(members) - 1) ** 0.5, mode="r").R)
    return factors


def blended_covariance(weights: Tensor, factors: list[Tensor]) -> Tensor:
    """Give Σ_b w_b F_bᵀ F_b, the covariance that a class borrows from base classes."""
    stacked = torch.cat([weight.sqrt() * factor for weight, factor in zip(weights, factors, strict=True)])
    return stacked.T @ stacked

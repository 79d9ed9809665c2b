"""Eq. obj with features as free variables: which class vectors regularised least squares prefers.

    min_{W, H} 1/(2N) ‖W H − Y‖² + λ_W/2 ‖W‖² + λ_H/2 ‖H‖²,    W [k d] = W_L … W_1, H [d N], Y one-hot [k N].

For L = 1 and classes of n_k images the minimiser is known (Dang et al. 2023): features collapse to one vector a class,
w_k = √(n_k λ_H/λ_W) h_k, and W Wᵀ is diagonal with entries √(n_k λ_H/λ_W) − N λ_H, or 0 where that is negative. So the
frame is orthogonal, for classes of equal and of unequal size alike. The paper calls it a simplex; a simplex would have
cosines of −1/(k − 1), which a free offset would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError


@final
@dataclass(frozen=True)
class FreeFeatures:
    """Class vectors W [k d] and features [N d] at a minimum of Eq. obj, and its value."""

    vectors: Tensor
    features: Tensor
    value: float

    def largest_cosine(self) -> float:
        """Give the largest cosine, in size, between the vectors of two classes: 0 for an orthogonal frame."""
        unit = functional.normalize(self.vectors)
        return float((unit @ unit.T).fill_diagonal_(0).abs().max())


def least_squares_objective(
    layers: Sequence[Tensor], features: Tensor, targets: Tensor, decay_vectors: float, decay_features: float
) -> Tensor:
    """Give Eq. obj for layers W_L, …, W_1, features [N d] and targets [N k]; λ_W counts for every layer."""
    scores = features
    for layer in reversed(layers):
        scores = scores @ layer.T
    fit = (scores - targets).square().sum() / (2 * len(features))
    decay = sum((layer.square().sum() for layer in layers), start=torch.zeros((), dtype=fit.dtype, device=fit.device))
    return fit + decay_vectors / 2 * decay + decay_features / 2 * features.square().sum()


def minimise_free_features(
    counts: Sequence[int],
    d: int,
    *,
    decay_vectors: float = 1e-3,
    decay_features: float = 1e-3,
    layers: int = 1,
    seed: int = 0,
) -> FreeFeatures:
    """Minimise Eq. obj for classes of so many images from a random start, by L-BFGS in double precision."""
    if len(counts) < 2 or min(counts) < 1 or d < len(counts) or layers < 1:
        raise InputError(
            f"Free features need two classes or more of an image or more, and a feature for each, but there are "
            f"{len(counts)} classes, {d} features and {layers} layers."
        )
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(list(counts)))
    targets = functional.one_hot(labels, len(counts)).double()
    generator = torch.Generator().manual_seed(seed)
    shapes = [(len(counts), d), *[(d, d)] * (layers - 1), (len(labels), d)]
    free = [
        (d**-0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_() for shape in shapes
    ]
    optimiser = torch.optim.LBFGS(
        free, max_iter=5000, history_size=30, tolerance_grad=1e-9, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = least_squares_objective(free[:-1], free[-1], targets, decay_vectors, decay_features)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    value = closure().item()
    W = torch.linalg.multi_dot([layer.detach() for layer in free[:-1]]) if layers > 1 else free[0].detach()
    return FreeFeatures(W, free[-1].detach(), value)

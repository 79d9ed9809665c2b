"""Fixed class vectors for the base classes, as far apart as they can be."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from masil.errors import InputError


def simplex_etf(k: int, d: int, generator: torch.Generator) -> Tensor:
    """Give k unit vectors in d dimensions with all cosines −1/(k−1), turned at random: W Wᵀ = (k I − 1 1ᵀ)/(k−1).

    No k vectors can be further apart. They sum to zero, so they span k − 1 dimensions and d >= k − 1 is enough.
    """
    if k < 2:
        raise InputError(f"A simplex needs at least 2 classes, but there is {k}." if k == 1 else _no_classes(k))
    if d < k - 1:
        raise InputError(
            f"A simplex of {k} classes needs at least {k - 1} features but there are {d}; "
            f"choose a wider projection or fewer base classes."
        )
    # Q = [1/√k | B] is orthogonal, so B Bᵀ = I − 1 1ᵀ/k: the rows of B are a simplex with squared norms (k−1)/k.
    spanning = torch.cat([torch.ones(k, 1, dtype=torch.float64), torch.eye(k, k - 1, dtype=torch.float64)], 1)
    B = torch.linalg.qr(spanning).Q[:, 1:]  # [k k−1]
    vertices: Tensor = math.sqrt(k / (k - 1)) * B @ _random_axes(k - 1, d, generator)
    return vertices.float()


def orthogonal_frame(k: int, d: int, generator: torch.Generator) -> Tensor:
    """Give k orthonormal vectors in d dimensions, turned at random: W Wᵀ = I, the optimum for unequal classes."""
    if k < 1:
        raise InputError(_no_classes(k))
    if d < k:
        raise InputError(
            f"An orthogonal frame of {k} classes needs at least {k} features but there are {d}; "
            f"choose a wider projection or fewer base classes."
        )
    return _random_axes(k, d, generator).float()


def _no_classes(k: int) -> str:
    return f"A frame was asked for {k} classes; give it the number of base classes."


def _random_axes(r: int, d: int, generator: torch.Generator) -> Tensor:
    """Draw r orthonormal rows [r d], every orientation as likely as any other (QR of a Gaussian, signs set by R)."""
    gaussian = torch.randn(d, r, generator=generator, device=generator.device).to("cpu", torch.float64)
    Q, R = torch.linalg.qr(gaussian)
    axes: Tensor = (Q * R.diagonal().sign()).T
    return axes


FRAMES: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "simplex": simplex_etf,
    "orthogonal": orthogonal_frame,
}

"""From a class's shots and its concept prior to its class vector: simplex fine-tuning (Eq. final_loss).

Eq. final_loss only attracts, so it falls apart into one problem per class. With h_i the embeddings of a class's shots,
c_i their weights (Σ c_i = 1: we average over the class's own shots) and ŵ the induced vector (Eq. weights), it reads

    literal:    Σ c_i (w·h_i − 1)² + α ‖w − ŵ‖²

whose minimiser solves (Hᵀ C H + αI) w = Hᵀ c + α ŵ. On the unit sphere 1 − w·h = ½‖w − h‖², and to put the distance in
place of its square makes of the same attraction the log-posterior of a mean,

    posterior:  Σ c_i ‖w − h_i‖² + α ‖w − ŵ‖²,    w = (m + α ŵ)/(1 + α),    m = Σ c_i h_i.

α is the prior's precision in units of the shots' own, so that the class vector is (1 − a) m + a ŵ with a = α/(1 + α).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

CYCLES = (10, 20, 40, 80, 160)  # steps of gradient descent between warm restarts (Loshchilov & Hutter 2017)


def posterior(means: Tensor, induced: Tensor, a: Tensor) -> Tensor:
    """Give the minimisers [k d] of (1 − a) ‖w − m‖² + a ‖w − ŵ‖², a = α/(1 + α) [k]: (1 − a) m + a ŵ."""
    return torch.lerp(means, induced, a[:, None])


def posterior_by_descent(means: Tensor, induced: Tensor, a: Tensor) -> Tensor:
    """Approach `posterior` by gradient descent with warm restarts from the induced vectors."""
    a = a[:, None]
    # At the full rate 1/curvature one step would do; the paper's schedule is kept for its own sake.
    return sgdr(lambda w: 2 * (1 - a) * (w - means) + 2 * a * (w - induced), induced, torch.tensor(0.25))


def literal(rows: Tensor, weights: Tensor, induced: Tensor, alpha: float) -> Tensor:
    """Give the minimiser [d] of Σ c_i (w·h_i − 1)² + α ‖w − ŵ‖², for rows h [n d] and weights c [n].

    With u = w − ŵ and G = C^½ H it is (GᵀG + αI) u = Gᵀ C^½ (1 − Hŵ), and by the push-through identity
    u = Gᵀ (GGᵀ + αI)⁻¹ C^½ (1 − Hŵ): n × n instead of d × d. α = 0 gives the minimiser nearest to ŵ.
    """
    G = rows.double() * weights.double().sqrt()[:, None]
    miss = weights.double().sqrt() * (1 - rows.double() @ induced.double())
    gram = G @ G.T + alpha * torch.eye(len(G), dtype=G.dtype)
    moved: Tensor = G.T @ (torch.linalg.pinv(gram, hermitian=True) @ miss)
    return (induced.double() + moved).to(rows.dtype)


def literal_by_descent(rows: Tensor, weights: Tensor, induced: Tensor, alpha: float) -> Tensor:
    """Approach `literal` by gradient descent with warm restarts from the induced vector."""

    def gradient(w: Tensor) -> Tensor:
        return 2 * rows.T @ (weights * (rows @ w - 1)) + 2 * alpha * (w - induced)

    # The curvature 2 λ_max(Hᵀ C H) + 2α is at most 2 + 2α for rows of unit length.
    return sgdr(gradient, induced, torch.tensor(1 / (2 + 2 * alpha)))


def sgdr(gradient: Callable[[Tensor], Tensor], start: Tensor, rate: Tensor) -> Tensor:
    """Descend with the rate falling along a cosine from `rate` to 0 in each cycle, then restarting."""
    w = start.clone()
    for steps in CYCLES:
        for factor in 0.5 * (1 + torch.cos(torch.pi * torch.arange(steps) / steps)):
            w = w - factor * rate * gradient(w)
    return w


def teen(vectors: Tensor, base: Tensor, weight: float, scale: float = 16.0) -> Tensor:
    """Draw novel vectors p [k d], at unit length, to the base vectors they resemble: (1−t) p + t `borrowed`."""
    if not len(base):
        return vectors
    unit = functional.normalize(vectors)
    return (1 - weight) * unit + weight * borrowed(unit, base, scale)


def borrowed(unit: Tensor, base: Tensor, scale: float) -> Tensor:
    """Give softmax(scale · p·Bᵀ) B for p [k d]: the base vectors B that it resembles, averaged (Wang et al. 2023).

    All are of unit length but what is given; TEEN itself brings that to unit length, too.
    """
    return torch.softmax(scale * unit @ base.T, 1) @ base

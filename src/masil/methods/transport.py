"""Optimal transport between small sets, many pairs at once: Sinkhorn's iteration (Cuturi 2013)."""

from __future__ import annotations

import torch
from torch import Tensor

from masil.errors import InputError

# Costs of 2 (one minus a cosine) give exp(−2/ε), and scalings up to its inverse: float32 holds both down to here.
SMALLEST = 0.03


def transport_plans(costs: Tensor, rows: Tensor, columns: Tensor, *, epsilon: float = 0.05, rounds: int = 50) -> Tensor:
    """Give F = argmin ⟨costs, F⟩ + ε Σ F log F over F >= 0 with row sums `rows` and column sums `columns`, [… r c].

    Costs lie in [0, 2]. F = diag(u) exp(−costs/ε) diag(v), u and v scaled in turn to meet the two sums. After the last
    round column sums are met exactly; row sums follow as the iteration converges. ⟨costs, F⟩ then exceeds the cheapest
    transport by at most ε times the mass times log(min(r, c)).
    """
    if epsilon < SMALLEST:
        raise InputError(f"The transport is smoothed by {epsilon:g}; below {SMALLEST:g} single precision overflows.")
    kernel = torch.exp(-costs / epsilon)
    u, v = torch.ones_like(rows), torch.ones_like(columns)
    for _ in range(rounds):
        u = rows / (kernel @ v[..., None])[..., 0]
        v = columns / (u[..., None, :] @ kernel)[..., 0, :]
    return u[..., None] * kernel * v[..., None, :]

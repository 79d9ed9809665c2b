"""The curvature of a factorisation around a stationary point, seen from the concepts alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.concepts.nnls_pivot import solve_on_support

# With E = PQ − A, the first-order conditions on the free entries F of P and F' of Q are (EQᵀ)_F = 0 and (PᵀE)_F' = 0.
# Their derivative, the Hessian of ½‖E‖² on the free entries, takes (X, Y) = (dP, dQ) to
#     H_PP X + H_PQ Y = X QQᵀ + (PYQᵀ + EYᵀ)      on F
#     H_QP X + H_QQ Y = (PᵀXQ + XᵀE) + PᵀP Y      on F'.
# H_PP is one small positive definite matrix for each row of P, so P is eliminated exactly: X = H_PP⁻¹(· − H_PQ Y), and
#     S = H_QQ − H_QP H_PP⁻¹ H_PQ,
# the Hessian of ψ(Q) = min_{P>=0} ½‖A − PQ‖², is left: v·d unknowns however many rows A has.
#
# H is singular along the v directions (P_j, −Q_j), which only move scale from a concept to its coefficients. ψ is
# constant along Q_j, so S Q_j = 0: the rows of Y are kept orthogonal to those of Q, which is what unit length asks for.


@final
class Curvature:
    """S, H_PP⁻¹, H_PQ and H_QP at (P, Q), matrix-free; `free` [v d] says which entries of Q may move."""

    def __init__(self, A: Tensor, P: Tensor, Q: Tensor, free: Tensor) -> None:
        self.P, self.Q, self.E = P, Q, P @ Q - A
        self.PP, self.gram = P.T @ P, Q @ Q.T
        self.gram.diagonal().fill_(1)
        self.used = P > 0
        diagonal = self.PP.diagonal()
        self.scale = torch.where(diagonal > 0, diagonal, 1)[:, None]
        self.restrict(free)

    def restrict(self, free: Tensor) -> None:
        """Let these entries of Q move and no others; of a concept that no row uses, which has no curvature, none."""
        self.free = free & self.used.any(0)[:, None]
        self._direction = torch.nn.functional.normalize(self.Q * self.free, dim=1)

    def tangent(self, Y: Tensor) -> Tensor:
        """Bring Y to the free entries, and its rows orthogonal to those of Q."""
        Y = Y * self.free
        return Y - (Y * self._direction).sum(1, keepdim=True) * self._direction

    def solve_rows(self, right: Tensor) -> Tensor:
        """H_PP⁻¹: each row's own system on its free entries."""
        return solve_on_support(self.gram, right, self.used)

    def to_rows(self, Y: Tensor) -> Tensor:
        """H_PQ Y."""
        return self.P @ (Y @ self.Q.T) + self.E @ Y.T

    def to_concepts(self, X: Tensor) -> Tensor:
        """H_QP X."""
        return (self.P.T @ X) @ self.Q + X.T @ self.E

    def __call__(self, Y: Tensor) -> Tensor:
        """S Y."""
        return self.tangent(self.PP @ Y - self.to_concepts(self.solve_rows(self.to_rows(Y))))


@final
@dataclass(frozen=True)
class Solved:
    """A solution of S Y = B, its residual relative to `size`, and whether all directions met had curvature."""

    solution: Tensor
    residual: float
    positive: bool


def conjugate_gradients(
    S: Callable[[Tensor], Tensor],
    right: Tensor,
    scale: Tensor,
    tol: float,
    *,
    max_iterations: int,
    size: float | None = None,
    flat: float = 1e-9,
) -> Solved:
    """Solve S Y = right, preconditioned by 1 / scale; stop at a direction whose curvature is below `flat` · scale.

    The residual is measured against `size`, which is ‖right‖ if not given. Where right is what is left of terms that
    cancel, give their size: a right-hand side that is zero but for their rounding then has the solution zero.
    """
    Y, residual = torch.zeros_like(right), right.clone()
    size = float(right.norm()) if size is None else size
    size = size or 1.0
    direction = preconditioned = residual / scale
    product = float((residual * preconditioned).sum())
    for _ in range(max_iterations):
        if float(residual.norm()) <= tol * size:
            break
        image = S(direction)
        curvature = float((direction * image).sum())
        if curvature <= flat * float((direction * scale * direction).sum()):
            return Solved(Y, float(residual.norm()) / size, False)
        step = product / curvature
        Y, residual = Y + step * direction, residual - step * image
        preconditioned = residual / scale
        product, former = float((residual * preconditioned).sum()), product
        direction = preconditioned + product / former * direction
    return Solved(Y, float(residual.norm()) / size, True)


def shortest_least_squares(
    S: Curvature, right: Tensor, tol: float, *, max_iterations: int, size: float | None = None
) -> Solved:
    """Minimise ‖S Y − right‖ for a singular S, by S D⁻¹ S Y = S D⁻¹ right with D the scale; of all Y, the shortest."""
    normal, image = (lambda Y: S(S(Y) / S.scale)), S(right / S.scale)
    return conjugate_gradients(normal, image, S.scale, tol, max_iterations=max_iterations, size=size, flat=0.0)

"""Gradients through a factorisation by implicit differentiation of its joint KKT system (Eq. del)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from masil.concepts.nmf_curvature import Curvature, conjugate_gradients, shortest_least_squares
from masil.concepts.nmf_polish import STATIONARY, polish

# At a stationary point with free sets F = {P > 0} and F' = {Q > 0}, dA moves (P, Q) by the solution of
#     H (dP, dQ) = (dA Qᵀ, Pᵀ dA)   on the free entries, 0 elsewhere,
# with H of `nmf_curvature`, which leaves the scale of each concept open: (P_j, −Q_j) spans its null space. Unit length
# of Q's rows fixes it. From any solution, dQ_j − (Q_j·dQ_j)Q_j and dP_j + (Q_j·dQ_j)P_j is the one with Q_j·dQ_j = 0.
#
# Backwards, from gradients (ḡ_P, ḡ_Q) on the free entries, the transpose of that last step adds to ḡ_Qj the multiple
# P_j·ḡ_Pj − Q_j·ḡ_Qj of Q_j, which makes them orthogonal to H's null space; then H (X, Y) = (ḡ_P, ḡ_Q) is solvable, and
# ∂/∂A = XQ + PY. Eliminating X,
#     S Y = ḡ_Q − H_QP H_PP⁻¹ ḡ_P,   X = H_PP⁻¹ (ḡ_P − H_PQ Y),
# where the right-hand side, in the range of S, has no part along Q_j. That multiple of Q_j is thus what a projection
# takes away, and need not be known.

GRADIENT_TOL = 1e-10
NEARLY_STATIONARY = 1e-7
ZERO = 10 * STATIONARY  # of Q's unit rows, and of P beside the length of its activations


class NMFGradientWarning(UserWarning):
    """The gradient of a factorisation is not what it should be."""


class _Implicit(Function):
    """Give (P, Q) as they are, and differentiate them with respect to A as the stationary point they are."""

    @staticmethod
    def forward(_: Tensor, P: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
        return P.clone(), Q.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], _: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_P: Tensor, by_Q: Tensor) -> tuple[Tensor, None, None]:
        A, P, Q = ctx.saved_tensors
        S = Curvature(A, P, Q, Q > 0)
        inner = S.solve_rows(by_P)
        # Beside these terms the right-hand side may be zero but for rounding: Q_j·dQ_j = 0 whatever dA is.
        terms = float(by_Q.norm() + P.norm() * inner.norm())
        Y = _solve(S, S.tangent(by_Q - S.to_concepts(inner)), terms)
        X = inner - S.solve_rows(S.to_rows(Y))
        return X @ Q + P @ Y, None, None


_attach: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = _Implicit.apply


def differentiable(A: Tensor, concepts: Tensor) -> tuple[Tensor, Tensor, float, bool]:
    """Polish the concepts of A, and give P and Q with their gradients, ½‖A − PQ‖²_F, and whether they are stationary.

    All in float64. Where strict complementarity fails (an entry is zero, and its multiplier too) the entry counts as
    bound and its derivative is 0, one of the two one-sided ones. A concept that no row uses does not move.
    """
    with torch.no_grad():
        point = polish(A.detach(), concepts)
    stationary = point.residual <= NEARLY_STATIONARY
    if not stationary:
        warnings.warn(
            "The factorisation is not at a stationary point, so its gradients are inexact: after polishing its KKT "
            f"residual is {point.residual:.1e}, above {NEARLY_STATIONARY:.0e}. More `max_iterations`, another `seed` "
            "or fewer concepts may help.",
            NMFGradientWarning,
            stacklevel=4,
        )
    # Which of the entries below the accuracy of the point are zero is decided by rounding, so all of them are.
    lengths = A.detach().norm(dim=1, keepdim=True).clamp_min(torch.finfo(A.dtype).tiny)
    P, Q = _attach(A, point.P * (point.P / lengths > ZERO), point.Q * (point.Q > ZERO))
    return P, Q, point.objective, stationary


def _solve(S: Curvature, right: Tensor, size: float) -> Tensor:
    """Solve S Y = right to a part of `size`; where S is singular, and right not in its range, as nearly as possible."""
    limit = 2 * right.numel()
    found = conjugate_gradients(S, right, S.scale, GRADIENT_TOL, max_iterations=limit, size=size)
    if not found.positive:
        warnings.warn(
            "The factorisation is not unique: its factors can move without a change of the objective, as they always "
            "can when too few of their entries are zero. The gradient is that of the shortest move; fewer concepts, or "
            "sparser activations, make it the only one.",
            NMFGradientWarning,
            stacklevel=2,
        )
        found = shortest_least_squares(S, right, GRADIENT_TOL, max_iterations=limit, size=size)
    if found.residual > 1e3 * GRADIENT_TOL:
        warnings.warn(
            f"The gradient of the factorisation is inexact: its system was solved to {found.residual:.0e} only.",
            NMFGradientWarning,
            stacklevel=2,
        )
    return found.solution

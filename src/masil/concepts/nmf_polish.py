"""From a good factorisation to a stationary point: Newton's method on the concepts, with exact coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.concepts.nmf_blocks import TensorBlocks
from masil.concepts.nmf_curvature import Curvature, conjugate_gradients
from masil.concepts.nmf_descent import RULES, Factors, descend, unit_rows
from masil.concepts.nnls import nnls

STATIONARY = 1e-13  # KKT residual at which there is nothing left to polish
MAX_STEPS = 100
HALVINGS = 6
EXCHANGES = 8
DESCENT_ITERATIONS = 40  # where Newton's step does not go down


@final
@dataclass(frozen=True)
class Point:
    """Concepts with their exact coefficients, and how far they are from the KKT conditions."""

    P: Tensor
    Q: Tensor
    objective: float
    gradient: Tensor  # of ψ(Q) = min_{P>=0} ½‖A − PQ‖², PᵀE
    residual: float


def polish(A: Tensor, Q: Tensor) -> Point:
    """Lower ψ(Q) = min_{P>=0} ½‖A − PQ‖² to a stationary point, in float64, until the KKT residual is `STATIONARY`.

    Newton's method with bounds, its step halved until ψ falls. Where it never does, alternating descent goes on for a
    while instead.
    """
    point = _at(A, Q)
    for _ in range(MAX_STEPS):
        if point.residual <= STATIONARY:
            break
        if (found := _newton(A, point) or _descent(A, point)) is None:
            break
        point = found
    return point


def _newton(A: Tensor, point: Point) -> Point | None:
    step = _bounded_step(A, point)
    for halving in range(HALVINGS):
        found = _at(A, unit_rows((point.Q + 0.5**halving * step).clamp_min(0), point.Q)[0])
        if _better(A, found, point):
            return found
    return None


def _bounded_step(A: Tensor, point: Point) -> Tensor:
    """Minimise the model ⟨∇ψ, Y⟩ + ½⟨Y, SY⟩ over Q + Y >= 0, nearly.

    Entries at zero whose gradient is positive stay there. The others take the step S Y = −∇ψ; those it would bring
    below zero are put at zero, and the rest is solved again.
    """
    Q, gradient = point.Q, point.gradient
    free = (Q > 0) | (gradient < 0)
    S = Curvature(A, point.P, Q, free)
    tol = min(0.1, point.residual**0.5)  # superlinear, and cheap as long as the free set still changes
    held = Y = torch.zeros_like(Q)
    for _ in range(EXCHANGES):
        right = S.tangent(-gradient - S(held))
        Y = held + conjugate_gradients(S, right, S.scale, tol, max_iterations=4 * max(A.shape)).solution
        if not bool((crossing := free & (Q + Y < 0)).any()):
            break
        free = free & ~crossing
        held = torch.where(crossing, -Q, held)
        S.restrict(free)
    return Y


def _descent(A: Tensor, point: Point) -> Point | None:
    source, rule = TensorBlocks(A), RULES["hals"]
    factors = Factors.of(point.P, torch.ones(len(point.Q), dtype=torch.float64), source, rule)
    energy = float(A.square().sum())
    found = descend(source, point.Q.cpu(), factors, rule, energy, max_iterations=DESCENT_ITERATIONS, tol=0)
    lower = _at(A, found.concepts.to(A))
    return lower if _better(A, lower, point) else None


def _better(A: Tensor, found: Point, point: Point) -> bool:
    """Whether ψ has fallen or, where rounding would hide that, the residual."""
    level = 1e-14 * float(A.square().sum())
    gain = point.objective - found.objective
    return gain > level or (gain >= -level and found.residual < 0.5 * point.residual)


def _at(A: Tensor, Q: Tensor) -> Point:
    P = nnls(A, Q).coefficients
    E = P @ Q - A
    gradient = P.T @ E
    # In the unit of Q: how far each entry is from where its gradient would bring it, or from zero.
    scale = P.square().sum(0)[:, None]
    gaps = torch.minimum(Q, gradient / torch.where(scale > 0, scale, 1)).abs() * (scale > 0)
    return Point(P, Q, 0.5 * float(E.square().sum()), gradient, float(gaps.max()))

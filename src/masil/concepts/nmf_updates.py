"""The problem that both factors of an NMF share, and two ways to go down in it.

With X = Pᵀ, G = QQᵀ, C = QAᵀ for the coefficients, and X = Q, G = PᵀP, C = PᵀA for the concepts, both are

    min_{X>=0} φ(X) = ½⟨X, GX⟩ − ⟨C, X⟩,   X [v m],

a non-negative least squares for each of the m columns. Neither way needs A again, and neither raises φ.
"""

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from masil.hardware import one_thread

PANEL = 16  # concepts that one matrix product serves


class Update(ABC):
    """A few steps down φ, from and to a state that holds X and whatever else is worth keeping for the next time."""

    @abstractmethod
    def begin(self, X: Tensor) -> Tensor:
        """Give a state with this X, which is copied."""

    @abstractmethod
    def factor(self, state: Tensor) -> Tensor:
        """Give X [v m], a view of the state."""

    @abstractmethod
    def lower(self, state: Tensor, G: Tensor, C: Tensor, steps: int) -> None:
        """Take `steps` steps, in place."""


@final
class Coordinates(Update):
    """Hierarchical alternating least squares (HALS): each row of X in turn is minimised exactly, the others fixed."""

    def begin(self, X: Tensor) -> Tensor:
        """The state is X."""
        return X.clone(memory_format=torch.contiguous_format)

    def factor(self, state: Tensor) -> Tensor:
        """X itself."""
        return state

    @one_thread()
    def lower(self, state: Tensor, G: Tensor, C: Tensor, steps: int) -> None:
        """x_j ← max(0, (c_j − Σ_{k≠j} G_jk x_k) / G_jj) for each concept j; a step is one sweep over all of them."""
        # With W_jk = G_jk / G_jj, a panel of concepts moves together: what all but those before it in the panel make of
        # x_j comes from one matrix product,
        #     y_j = c_j / G_jj − Σ_{k before the panel, or k > j} W_jk x_k,
        # then each in turn takes off what those before it in the panel have become, and what is below zero:
        #     y_j ← max(0, y_j − Σ_{k<j in the panel} W_jk y_k).
        # All views are made once and W is negated, because on small problems it is the number of operations and of
        # their arguments that counts. A concept with G_jj = 0 takes no part in the objective, whatever x_j is: it stays
        # as it is, which −W_jj = 1 makes of the product.
        X, v, diagonal = state, len(G), G.diagonal()
        inverse = torch.where(diagonal > 0, 1 / diagonal, 0)
        weights, target = -G * inverse[:, None], C * inverse[:, None]
        weights.diagonal().copy_(diagonal == 0)
        fresh = torch.empty_like(X[:PANEL])
        turns = [(fresh[j], fresh[:j].T) for j in range(len(fresh))]
        panels = []
        for start in range(0, v, PANEL):
            rows = slice(start, min(start + PANEL, v))
            together = weights[rows].clone()
            together[:, rows].triu_()
            own = zip(turns, weights[rows], strict=False)  # the last panel may have fewer concepts
            inner = [(y, before, row[start : start + j]) for j, ((y, before), row) in enumerate(own)]
            panels.append((X[rows], target[rows], together, fresh[: len(inner)], inner))
        for _ in range(steps):
            for x, goal, together, new, inner in panels:
                torch.addmm(goal, together, X, out=new)
                inner[0][0].relu_()
                for y, before, weight in inner[1:]:
                    y.addmv_(before, weight).relu_()
                x.copy_(new)


@final
class Splitting(Update):
    """ADMM (Huang, Sidiropoulos & Liavas 2016): X = X̃ with X >= 0, the scaled dual U kept for the next time.

    A few steps of ADMM need not go down. A column that they did not bring down keeps its former X; its dual goes on.
    """

    def begin(self, X: Tensor) -> Tensor:
        """The state is X and U = 0, [2 v m]."""
        return torch.stack([X, torch.zeros_like(X)])

    def factor(self, state: Tensor) -> Tensor:
        """X, without its dual."""
        return state[0]

    @one_thread()
    def lower(self, state: Tensor, G: Tensor, C: Tensor, steps: int) -> None:
        """X̃ ← (G + ρI)⁻¹ (C + ρ(X + U)),  X ← max(0, X̃ − U),  U ← U + X − X̃,  with ρ = tr G / v."""
        rho = float(G.trace()) / len(G)
        if rho == 0:
            return
        inverse = _shifted_inverse(G, rho)
        best, (X, U) = state[0].clone(), state
        before = _columns(X, G, C)
        for _ in range(steps):
            relaxed = inverse @ torch.add(C, X + U, alpha=rho)
            torch.sub(relaxed, U, out=X).clamp_(min=0)
            U.add_(X).sub_(relaxed)
        X.copy_(torch.where(_columns(X, G, C) <= before, X, best))


def ridge_start(G: Tensor, C: Tensor) -> Tensor:
    """Give max(0, (G + λI)⁻¹C) with λ the mean of G's diagonal.

    Six sweeps of coordinate descent from here end 3e-5 above the minimum on real activations, from zero 1e-3.
    """
    ridge = float(G.trace()) / len(G)
    return (_shifted_inverse(G, ridge or 1.0) @ C).clamp_(min=0)


def _shifted_inverse(G: Tensor, shift: float) -> Tensor:
    """(G + shift · I)⁻¹, safe to form: for a shift of the diagonal's mean its condition is at most v + 1."""
    inverse: Tensor = torch.linalg.inv(G.cpu().double() + shift * torch.eye(len(G), dtype=torch.float64))
    return inverse.to(G.dtype).to(G.device)


def _columns(X: Tensor, G: Tensor, C: Tensor) -> Tensor:
    """φ of each column, [m]."""
    return ((0.5 * (G @ X) - C) * X).sum(0)

"""Gradients through non-negative least squares by implicit differentiation of its KKT conditions (Eq. del)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from masil.concepts.nnls_pivot import solve_on_support

# At the solution, with F = {j : P_j > 0} the free set of a row,
#     (PQ − A) Q_Fᵀ = 0   and   P_j = 0 for j off F.
# Under strict complementarity (P_j = 0 only where the multiplier is positive) F does not change near by, and
#     dP_F Q_F Q_Fᵀ + P dQ Q_Fᵀ + (PQ − A) dQ_Fᵀ − dA Q_Fᵀ = 0,
# so that, with the residual R = A − PQ,
#     dP_F = (dA Q_Fᵀ − P dQ Q_Fᵀ + R dQ_Fᵀ)(Q_F Q_Fᵀ)⁻¹,   dP = 0 off F.
# Backwards, from the gradient Ḡ with respect to P: Y_F = Ḡ_F (Q_F Q_Fᵀ)⁻¹, Y = 0 off F, and
#     ∂/∂A = Y Q,   ∂/∂Q = Yᵀ R − Pᵀ Y Q.


class NonNegativeLeastSquares(Function):
    """Solve, and differentiate on the free set; twice and more often too, since `backward` is itself differentiable."""

    @staticmethod
    def forward(A: Tensor, Q: Tensor, solve: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Give what `solve` finds, the coefficients first."""
        return solve(A.detach(), Q.detach())  # threads of their own would take up tangents that this one leaves out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep A, Q and P; only P is differentiable."""
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[:2], output[0])
        ctx.save_for_forward(*inputs[:2], output[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """∂/∂A = Y Q and ∂/∂Q = Yᵀ R − Pᵀ Y Q."""
        A, Q, P = ctx.saved_tensors
        Y = _free_solve(Q, gradients[0], P > 0)
        by_A = Y @ Q
        by_Q = Y.T @ (A - P @ Q) - P.T @ by_A if ctx.needs_input_grad[1] else None
        return by_A, by_Q, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """dP_F = (dA Q_Fᵀ − P dQ Q_Fᵀ + R dQ_Fᵀ)(Q_F Q_Fᵀ)⁻¹."""
        A, Q, P = ctx.saved_tensors
        dA, dQ = tangents[:2]
        right = torch.zeros_like(P) if dA is None else dA @ Q.T
        if dQ is not None:
            right = right - P @ (dQ @ Q.T) + (A - P @ Q) @ dQ.T
        return _free_solve(Q, right, P > 0), None, None, None, None


class _SolveOnSupport(Function):
    """Y_F = B_F C_FF⁻¹ with fixed supports: ∂/∂B = Z with Z_F = Ȳ_F C_FF⁻¹, and ∂/∂C = −Yᵀ Z."""

    @staticmethod
    def forward(gram: Tensor, right: Tensor, support: Tensor) -> Tensor:
        return solve_on_support(gram, right, support)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        gram, _, support = inputs
        ctx.save_for_backward(gram, support, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        gram, support, Y = ctx.saved_tensors
        Z = _solve_on_support(gram, gradients[0], support)
        return -Y.T @ Z, Z, None


solve_differentiably: Callable[..., tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = NonNegativeLeastSquares.apply
_solve_on_support: Callable[[Tensor, Tensor, Tensor], Tensor] = _SolveOnSupport.apply


def _free_solve(Q: Tensor, right: Tensor, free: Tensor) -> Tensor:
    """Give Y with Y_F = right_F (Q_F Q_Fᵀ)⁻¹ on each row's free set, through concepts of unit length."""
    unit, scale = unit_rows(Q)
    return _solve_on_support(unit @ unit.T, right / scale, free) / scale


def unit_rows(Q: Tensor) -> tuple[Tensor, Tensor]:
    """Scale rows to unit length; give them and their lengths, 1 for a zero row. Neither overflows nor underflows."""
    peak = Q.detach().abs().amax(1)
    peak = torch.where(peak > 0, peak, 1)
    shrunk = Q / peak[:, None]
    length = shrunk.norm(dim=1)
    length = torch.where(length > 0, length, 1)
    return shrunk / length[:, None], length * peak

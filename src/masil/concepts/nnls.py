"""Non-negative least squares for every row at once: exact, batched, and differentiable."""

import torch
from torch import Tensor

from masil.concepts.checks import dtype_name
from masil.concepts.nnls_gradient import solve_differentiably
from masil.concepts.nnls_gram import NNLSResult, Solver, make_plan
from masil.errors import InputError


def nnls(
    A: Tensor,
    Q: Tensor,
    *,
    solver: Solver = "auto",
    tol: float | None = None,
    max_iterations: int = 1000,
    warm: NNLSResult | Tensor | None = None,
) -> NNLSResult:
    """Solve min_{P>=0} ½‖A − PQ‖²_F for every row of A (Eq. inf).

    Neither A nor Q need be non-negative. A zero row of A has zero coefficients, and so has a zero concept. Where the
    minimiser is not unique (concepts that repeat, more concepts than features), one is chosen by the input alone:
    without `warm`, concepts that are equal share equally.

    Gradients flow from `coefficients` to A and Q, backwards any number of times, or forwards once. They hold the free
    set F = {P > 0} fixed: where strict complementarity fails (P = 0 and the multiplier is 0 too) the coefficient counts
    as bound, and its derivative is 0, one of the two one-sided ones. Where Q_F Q_Fᵀ is singular, its pseudo-inverse for
    concepts of unit length takes the place of the inverse; second derivatives are not exact there.

    Args:
        A: [n d], float32 or float64; n may be 0.
        Q: [v d], of the same type, on the same device.
        solver: "admm" iterates until the tolerance, then solves exactly, on their supports, the rows that are not
            there; "pivot" solves exactly from the start; "auto" gives ADMM as many steps as one exact solve costs.
        tol: of the KKT residual, see `NNLSResult`; 4√v rounding errors if not given.
        max_iterations: of ADMM, taken in eights, and again of the exchanges in the exact solve.
        warm: an earlier result, or earlier coefficients [n v], to start from.

    """
    check_matrices(A, Q)
    plan = make_plan(A.dtype, len(Q), solver, tol, max_iterations)
    return NNLSResult(*solve_differentiably(A, Q, plan, warm))


def check_matrices(A: Tensor, Q: Tensor) -> None:
    """Refuse activations [n d] and concepts [v d] that do not fit each other."""
    if A.ndim != 2 or Q.ndim != 2:
        raise InputError(
            f"NNLS takes activations [n d] and concepts [v d], but got {list(A.shape)} and {list(Q.shape)}."
        )
    for name, matrix in (("activations", A), ("concepts", Q)):
        if matrix.dtype not in (torch.float32, torch.float64):
            raise InputError(f"The {name} are {dtype_name(matrix.dtype)}; convert them to float32 or float64.")
    if A.dtype != Q.dtype:
        raise InputError(
            f"The activations are {dtype_name(A.dtype)} but the concepts {dtype_name(Q.dtype)}; "
            "convert one to the other."
        )
    if A.device != Q.device:
        raise InputError(f"The activations are on {A.device} but the concepts on {Q.device}; move one to the other.")
    if A.shape[1] != Q.shape[1]:
        raise InputError(
            f"The activations have {A.shape[1]} features but the concepts have {Q.shape[1]}; "
            "were they computed with the same backbone?"
        )
    if 0 in Q.shape:
        raise InputError(
            f"The concepts have shape {list(Q.shape)}, but NNLS needs at least one concept and one feature."
        )
    for name, matrix in (("activations", A), ("concepts", Q)):
        if not bool(matrix.sum().isfinite()) and not bool(matrix.isfinite().all()):
            rows = int((~matrix.isfinite()).any(1).sum())
            raise InputError(f"The {name} have NaN or infinite values in {rows} of {len(matrix)} rows.")

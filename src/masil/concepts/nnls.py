"""Non-negative least squares for every row at once: exact, batched, and differentiable.

After the one product A Qᵀ everything is in Gram form, and costs v² a row.
"""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor

from masil.concepts.checks import dtype_name
from masil.concepts.nnls_admm import CHECK_EVERY, Splitting, admm, rehearse
from masil.concepts.nnls_gradient import solve_differentiably, unit_rows
from masil.concepts.nnls_pivot import pivot
from masil.errors import InputError, lookup
from masil.hardware import even_length, one_thread, share_out

Solver = Literal["auto", "admm", "pivot"]

# An exact solve on a row's support costs about as much as 64 steps of ADMM. To stop ADMM there, and solve exactly what
# is left, is never more than about twice as dear as having known which of the two to use.
ADMM_STEPS: dict[str, float] = {"auto": 64, "admm": math.inf, "pivot": 0}
MOST_ROWS, FEWEST_ROWS = 2048, 512  # in a block, dealt to threads; two iterates fit the second-level cache at v = 64
REHEARSAL_ROWS, REHEARSED_FROM = 256, 2048  # rows that are solved first of so many or more
FEW_ROWS = 64  # whose steps are too short for threads to be started, or counted, at all


@final
@dataclass(frozen=True)
class NNLSResult:
    """The coefficients P of min_{P>=0} ½‖A − PQ‖², and the proof that they are the solution.

    Attributes:
        coefficients: P [n v] >= 0. Carries the graph when A or Q requires a gradient.
        multipliers: [n v] >= 0, the gradient PQQᵀ − AQᵀ where P = 0, and 0 where P > 0.
        residual: [n], how far each row is from the KKT conditions P >= 0, G = PQQᵀ − AQᵀ >= 0, P∘G = 0. With
            p_j = P_j‖q_j‖, g_j = G_j/‖q_j‖ and f_j = a·q_j/‖q_j‖, all in the unit of a, it is
            max_j |min(p_j, g_j)| / max_j max(|f_j|, p_j). It does not change when A, Q or a single concept is
            multiplied by a positive number, and is zero at a solution and nowhere else. A zero row has residual 0.
        iterations: int64 [n], steps of ADMM plus exchanges of the active set.
        converged: bool [n], whether the residual is within the tolerance.

    """

    coefficients: Tensor
    multipliers: Tensor
    residual: Tensor
    iterations: Tensor
    converged: Tensor


def nnls(
    A: Tensor, Q: Tensor, *, solver: Solver = "auto", tol: float | None = None, max_iterations: int = 1000,
    warm: NNLSResult | Tensor | None = None,
) -> NNLSResult:  # fmt: skip
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
        max_iterations: of ADMM, taken a few at a time, and again of the exchanges in the exact solve.
        warm: an earlier result, or earlier coefficients [n v], to start from.

    """
    on_processor = isinstance(A, Tensor) and A.device.type == "cpu" and len(A) > FEW_ROWS
    threads = torch.get_num_threads() if on_processor else 1
    with one_thread(short=on_processor):
        _check(A, Q)
        plan = replace(make_plan(A.dtype, len(Q), solver, tol, max_iterations), threads=threads)
        return NNLSResult(*solve_differentiably(A, Q, partial(_solve, plan=plan, warm=warm)))


def _check(A: Tensor, Q: Tensor) -> None:
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
    _check_finite("concepts", Q, Q)


def _check_finite(name: str, rows: Tensor, matrix: Tensor) -> None:
    """Refuse some rows of a matrix that are not all finite, and say how many of its rows are not."""
    if not bool(rows.sum().isfinite()) and not bool(rows.isfinite().all()):
        bad = int((~matrix.isfinite()).any(1).sum())
        raise InputError(f"The {name} have NaN or infinite values in {bad} of {len(matrix)} rows.")


@dataclass(frozen=True)
class Plan:
    """How far to go, and by which means."""

    tolerance: float
    steps: int  # of ADMM
    exchanges: int  # in the exact solve of what ADMM leaves
    threads: int = 1  # that blocks of rows are shared out to


def make_plan(dtype: torch.dtype, v: int, solver: Solver, tol: float | None, max_iterations: int) -> Plan:
    """Make a plan; the tolerance, if not given, is what rounding leaves of a residual that sums v products: 4√v eps."""
    tolerance = 4 * math.sqrt(v) * torch.finfo(dtype).eps if tol is None else tol
    if not tolerance > 0 or max_iterations < 0:
        raise InputError(f"NNLS needs tol > 0 and max_iterations >= 0, but got {tolerance} and {max_iterations}.")
    return Plan(tolerance, int(min(max_iterations, lookup("NNLS solver", solver, ADMM_STEPS))), max_iterations)


def _solve(A: Tensor, Q: Tensor, plan: "Plan", warm: NNLSResult | Tensor | None) -> tuple[Tensor, ...]:
    """Scale the concepts to unit length, then solve in blocks."""
    unit, scale = unit_rows(Q)
    exact = unit.cpu().double()  # the product is small, and then as exact as the format can show
    gram = (exact @ exact.T).to(Q.dtype).to(Q.device)

    def cross(rows: slice) -> Tensor:
        block = A[rows]
        _check_finite("activations", block, A)  # just before the product, which then finds them in the cache
        return block @ unit.T

    found = solve_rows(gram, scale, cross, len(A), plan, warm)
    return found.coefficients, found.multipliers, found.residual, found.iterations, found.converged


def solve_rows(
    gram: Tensor, scale: Tensor, cross: Callable[[slice], Tensor], n: int, plan: Plan, warm: NNLSResult | Tensor | None
) -> NNLSResult:
    """Solve block by block: `gram` and `cross(rows)` are of unit concepts, `scale` [v] brings coefficients back.

    A zero concept comes with a zero row and column in `gram` and a scale of 1, and gets coefficient 0.
    """
    v = len(gram)
    start = warm.coefficients if isinstance(warm, NNLSResult) else warm
    if start is not None and start.shape != (n, v):
        raise InputError(f"The warm start has shape {list(start.shape)} but the problem needs {[n, v]}.")
    splitting, first = Splitting(gram), CHECK_EVERY
    if warm is None and plan.steps and n >= REHEARSED_FROM:
        some = slice(0, n, n // REHEARSAL_ROWS)
        first = rehearse(splitting, cross(some), plan.tolerance, plan.steps)
    coefficients, multipliers, residual = gram.new_empty(n, v), gram.new_empty(n, v), gram.new_empty(n)
    iterations = torch.zeros(n, dtype=torch.int64, device=gram.device)

    def solve(rows: slice) -> None:
        own = copy(splitting)  # each block moves ρ for itself
        f = cross(rows)
        state = None if warm is None else _warm_state(own, f, scale, warm, rows)
        p, g, residual[rows], iterations[rows] = _solve_block(own, f, state, plan, first)
        torch.div(p, scale, out=coefficients[rows])
        g.clamp_min_(0).addcmul_(g, p.sign(), value=-1)  # zero where p > 0, without a branch for each entry
        torch.mul(g, scale, out=multipliers[rows])

    length = even_length(n, MOST_ROWS, FEWEST_ROWS)
    share_out(solve, [slice(start, min(start + length, n)) for start in range(0, n, length)], plan.threads)
    return NNLSResult(coefficients, multipliers, residual, iterations, residual <= plan.tolerance)


def _warm_state(splitting: Splitting, f: Tensor, scale: Tensor, warm: NNLSResult | Tensor, rows: slice) -> Tensor:
    if isinstance(warm, Tensor):
        p = warm[rows].detach().to(f) * scale
        y = torch.addmm(f, p, splitting.gram, beta=-1).clamp_min(0)
    else:
        p, y = warm.coefficients[rows].detach().to(f) * scale, warm.multipliers[rows].to(f) / scale
    # A zero row ends at zero, and has no other scale to end by. A zero concept is free, and kept where it belongs.
    return splitting.warm(p, y) * f.any(1, keepdim=True) * (splitting.gram.diagonal() > 0)


def _solve_block(
    splitting: Splitting, f: Tensor, state: Tensor | None, plan: Plan, first: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give coefficients, gradients, residuals and iterations of rows: by ADMM, then exactly where that did not do."""
    found = admm(splitting, f, state, plan.tolerance, plan.steps, first=first)
    p, g, residual, iterations = found.state.clamp_min(0), found.gradient, found.residual, found.iterations
    if bool((left := ~(residual <= plan.tolerance)).any()):
        exact = pivot(splitting.gram, f[left], found.state[left], plan.tolerance, plan.exchanges)
        better = exact.residual < residual[left]
        rows = left.nonzero()[:, 0][better]
        p[rows], residual[rows] = exact.coefficients[better], exact.residual[better]
        g[rows] = torch.addmm(f[rows], p[rows], splitting.gram, beta=-1)
        iterations[left] += exact.exchanges
    return p, g, residual, iterations

"""Non-negative least squares in Gram form: everything after the one product A Qᵀ costs v² a row."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from masil.concepts.nnls_admm import Splitting, admm
from masil.concepts.nnls_pivot import pivot
from masil.errors import InputError, lookup

Solver = Literal["auto", "admm", "pivot"]

# An exact solve on a row's support costs about as much as 64 steps of ADMM. To stop ADMM there, and solve exactly what
# is left, is never more than about twice as dear as having known which of the two to use.
ADMM_STEPS: dict[str, float] = {"auto": 64, "admm": math.inf, "pivot": 0}
BLOCK_ROWS = 2048  # of a block's iterates a few fit the second-level cache at v = 64


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


@dataclass(frozen=True)
class Plan:
    """How far to go, and by which means."""

    tolerance: float
    steps: int  # of ADMM
    exchanges: int  # in the exact solve of what ADMM leaves


def make_plan(dtype: torch.dtype, v: int, solver: Solver, tol: float | None, max_iterations: int) -> Plan:
    """Make a plan; the tolerance, if not given, is what rounding leaves of a residual that sums v products: 4√v eps."""
    tolerance = 4 * math.sqrt(v) * torch.finfo(dtype).eps if tol is None else tol
    if not tolerance > 0 or max_iterations < 0:
        raise InputError(f"NNLS needs tol > 0 and max_iterations >= 0, but got {tolerance} and {max_iterations}.")
    return Plan(tolerance, int(min(max_iterations, lookup("NNLS solver", solver, ADMM_STEPS))), max_iterations)


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
    splitting = Splitting(gram)
    coefficients, multipliers, residual = gram.new_empty(n, v), gram.new_empty(n, v), gram.new_empty(n)
    iterations = torch.zeros(n, dtype=torch.int64, device=gram.device)
    for first in range(0, n, BLOCK_ROWS):
        rows = slice(first, min(first + BLOCK_ROWS, n))
        f = cross(rows)
        state = splitting.cold(f) if warm is None else _warm_state(splitting, f, scale, warm, rows)
        p, residual[rows], iterations[rows] = _solve_block(splitting, f, state, plan, warm is not None)
        g = torch.addmm(f, p, gram, beta=-1)
        coefficients[rows] = p / scale
        multipliers[rows] = torch.where(p > 0, 0, g.clamp_min(0)) * scale
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
    splitting: Splitting, f: Tensor, state: Tensor, plan: Plan, warm: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the coefficients, residuals and iterations of some rows: by ADMM, then exactly where that did not do."""
    found = admm(splitting, f, state, plan.tolerance, plan.steps, warm=warm)
    p, residual, iterations = found.state.clamp_min(0), found.residual, found.iterations
    if bool((left := ~(residual <= plan.tolerance)).any()):
        exact = pivot(splitting.gram, f[left], found.state[left], plan.tolerance, plan.exchanges)
        better = exact.residual < residual[left]
        rows = left.nonzero()[:, 0][better]
        p[rows], residual[rows] = exact.coefficients[better], exact.residual[better]
        iterations[left] += exact.exchanges
    return p, residual, iterations

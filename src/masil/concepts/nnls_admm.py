"""ADMM for many non-negative least-squares problems that share one Gram matrix: one v × v product a step."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from masil.errors import InputError

RELAXATION = 1.8  # over-relaxation α: 1 is plain ADMM, 2 is Peaceman–Rachford
CHECK_EVERY = 8  # a check costs about two steps
BALANCE = 3.0  # ρ moves when the median primal and dual residuals differ by more than this factor
RHO_RANGE = (1e-3, 1e3)
BALANCED_ROWS = 256  # that decide how ρ moves

# With the Gram matrix C = QQᵀ scaled to a unit diagonal and f = AQᵀ scaled alike, each row p solves
# min_{p>=0} ½ pCpᵀ − fpᵀ. Split x = z with z >= 0 and scaled dual u. One relaxed step of ADMM is
#     x̂ = (f + ρ(z − u))(C + ρI)⁻¹,   x = αx̂ + (1 − α)z,   z' = max(x + u, 0),   u' = x + u − z'.
# Write t = z + u. As z' = max(t', 0) and u' = min(t', 0) never overlap, z − u = |t|, and the step becomes
#     t' = αf(C + ρI)⁻¹ + |t| (αρ(C + ρI)⁻¹ − (α/2)I) + (1 − α/2) t,
# one matrix product and two sums. At the fixed point p = max(t, 0), and pC − f = −ρu = ρ·max(−t, 0) are the
# multipliers. The unit diagonal makes ρ = 1, the mean eigenvalue of C, a good start whatever the data's scale.


@dataclass
class Splitting:
    """The operators of one step for the present ρ; C + ρI is factored once, and again only when ρ moves."""

    gram: Tensor  # [v v], with a unit diagonal, or 0 for a zero concept
    rho: float = 1.0
    kernel: Tensor = field(init=False)  # αρ(C + ρI)⁻¹ − (α/2)I
    offset: Tensor = field(init=False)  # α(C + ρI)⁻¹

    def __post_init__(self) -> None:
        self.set_rho(self.rho)

    def set_rho(self, rho: float) -> None:
        """Factor C + ρI in double precision on the CPU: it is small, and some devices have neither."""
        self.rho = rho
        gram = self.gram.detach().cpu().double()
        identity = torch.eye(len(gram), dtype=torch.float64)
        factor, failed = torch.linalg.cholesky_ex(gram + rho * identity)
        if bool(failed):
            raise InputError("The Gram matrix is not positive semi-definite; is it the product QQᵀ?")
        inverse = torch.cholesky_inverse(factor)
        for name, operator in (("kernel", rho * inverse - identity / 2), ("offset", inverse)):
            setattr(self, name, (RELAXATION * operator).to(self.gram.dtype).to(self.gram.device))

    def cold(self, cross: Tensor) -> Tensor:
        """Start from the relaxed ridge solution."""
        return cross @ self.offset

    def warm(self, coefficients: Tensor, multipliers: Tensor) -> Tensor:
        """Start from t = p − y/ρ, where p and y are earlier coefficients and multipliers."""
        return torch.where(coefficients > 0, coefficients, -multipliers / self.rho)


@dataclass(frozen=True)
class Iterates:
    """Where ADMM left each row."""

    state: Tensor  # [n v], t = z + u
    residual: Tensor  # [n], as `kkt_residual` of max(t, 0)
    iterations: Tensor  # int64 [n]


def kkt_residual(coefficients: Tensor, gradient: Tensor, cross: Tensor) -> Tensor:
    """Give max_j |min(p_j, g_j)| / max_j max(|f_j|, p_j) for every row, 0 for a zero row (concepts of unit length)."""
    violation = torch.minimum(coefficients, gradient).abs().amax(1)
    scale = torch.maximum(cross.abs().amax(1), coefficients.amax(1))
    return torch.where(violation == 0, 0, violation / scale)


def admm(
    splitting: Splitting, cross: Tensor, state: Tensor, tolerance: float, limit: int, *, warm: bool = True
) -> Iterates:
    """Iterate every row until its KKT residual is within `tolerance`; rows that are there leave the batch.

    A start that is not warm is not checked, as long as there are steps to take.
    """
    final = torch.empty_like(state)
    residual = torch.empty_like(cross[:, 0])
    iterations = torch.zeros(len(cross), dtype=torch.int64, device=cross.device)
    rows = torch.arange(len(cross), device=cross.device)
    for step in range(0 if warm or limit < CHECK_EVERY else CHECK_EVERY, limit + 1, CHECK_EVERY):
        if step:
            state, previous = _advance(splitting, cross, state)
        p = state.clamp_min(0)
        found = kkt_residual(p, torch.addmm(cross, p, splitting.gram, beta=-1), cross)
        residual[rows], iterations[rows] = found, step
        open_ = ~(found <= tolerance)
        left = int(open_.sum())
        if left == 0 or step + CHECK_EVERY > limit:
            break
        if step:
            state = _balance(splitting, previous, state, open_.nonzero()[:BALANCED_ROWS, 0])
        if left <= 0.75 * len(rows):
            final[rows[~open_]] = state[~open_]
            rows, cross, state = rows[open_], cross[open_], state[open_]
    final[rows] = state
    return Iterates(final, residual, iterations)


def _advance(splitting: Splitting, cross: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Take CHECK_EVERY steps; give the last state and the one before it."""
    offset = cross @ splitting.offset
    state, previous, magnitude = state.clone(), torch.empty_like(state), torch.empty_like(state)
    for step in range(CHECK_EVERY):
        if step == CHECK_EVERY - 1:
            previous.copy_(state)
        torch.abs(state, out=magnitude)
        torch.add(offset, state, alpha=1 - RELAXATION / 2, out=state)
        state.addmm_(magnitude, splitting.kernel)
    return state, previous


def _balance(splitting: Splitting, previous: Tensor, state: Tensor, rows: Tensor) -> Tensor:
    """Move ρ towards equal primal ‖x̂ − z'‖ and dual ρ‖z' − z‖ residuals; ρu, the multiplier, stays as it is."""
    old, new = previous[rows], state[rows]
    z = new.clamp_min(0)
    x = (new - (1 - RELAXATION / 2) * old) / RELAXATION + old.abs() / 2
    primal = (x - z).norm(dim=1)
    dual = splitting.rho * (z - old.clamp_min(0)).norm(dim=1)
    ratio = float((primal / dual.clamp_min(torch.finfo(dual.dtype).tiny)).median())
    if 1 / BALANCE <= ratio <= BALANCE:
        return state
    rho = min(max(splitting.rho * min(max(ratio**0.5, 0.25), 4.0), RHO_RANGE[0]), RHO_RANGE[1])
    if rho == splitting.rho:
        return state
    state = torch.where(state > 0, state, state * (splitting.rho / rho))
    splitting.set_rho(rho)
    return state

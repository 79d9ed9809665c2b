"""ADMM for many non-negative least-squares problems that share one Gram matrix: one v × v product a step."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from masil.errors import InputError

RELAXATION = 1.8  # over-relaxation α: 1 is plain ADMM, 2 is Peaceman–Rachford
CHECK_EVERY = 8  # a check costs about two steps
REHEARSALS, REHEARSAL_STEPS = 3, 24  # at most, the steps in each
REHEARSED = 0.7  # of the rows of a rehearsal: what is open then goes on in a smaller batch
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
    gradient: Tensor  # [n v], pC − f at p = max(t, 0)
    residual: Tensor  # [n], as `kkt_residual` of max(t, 0)
    iterations: Tensor  # int64 [n]

    def into(self, whole: "Iterates | None", rows: Tensor | None) -> "Iterates":
        """Take the place of some rows of the whole, if there is one, and give the whole."""
        if whole is None:
            return self
        whole.state[rows], whole.gradient[rows] = self.state, self.gradient
        whole.residual[rows], whole.iterations[rows] = self.residual, self.iterations
        return whole


def kkt_residual(coefficients: Tensor, gradient: Tensor, cross: Tensor) -> Tensor:
    """Give max_j |min(p_j, g_j)| / max_j max(|f_j|, p_j) for every row, 0 for a zero row (concepts of unit length)."""
    violation = torch.minimum(coefficients, gradient).abs().amax(1)
    scale = torch.maximum(cross.abs().amax(1), coefficients.amax(1))
    return torch.where(violation == 0, 0, violation / scale)


def admm(
    splitting: Splitting,
    cross: Tensor,
    state: Tensor | None,
    tolerance: float,
    limit: int,
    *,
    first: int = CHECK_EVERY,
) -> Iterates:
    """Iterate every row until its KKT residual is within `tolerance`; rows that are there leave the batch.

    Args:
        splitting: the operators, whose ρ is moved.
        cross: f [n v].
        state: t [n v] to start from, which is checked before the first step; None for a cold start, which is not, as
            long as there are steps to take.
        tolerance: of the KKT residual.
        limit: of the steps.
        first: steps before the first check; others follow every CHECK_EVERY steps.

    """
    first = min(first, CHECK_EVERY * (limit // CHECK_EVERY))
    offset = splitting.cold(cross) if state is None else None  # the constant term of a step, None if not known
    t, step = (offset, first) if state is None else (state.clone(), 0)
    assert t is not None
    previous, taken = t, 0
    rows: Tensor | None = None  # those in the batch; None as long as all are
    found: Iterates | None = None
    while True:
        if step:
            offset = splitting.cold(cross) if offset is None else offset
            t, previous = _advance(splitting, offset, t, step - taken)
        p = t.clamp_min(0)
        gradient = torch.addmm(cross, p, splitting.gram, beta=-1)
        residual = kkt_residual(p, gradient, cross)
        open_ = ~(residual <= tolerance)
        left = int(open_.sum())
        taken, step = step, step + (CHECK_EVERY if step else first)
        ends, leaving = left == 0 or not taken < step <= limit, left <= 0.75 * len(cross)
        if ends or leaving:
            steps = torch.full((len(cross),), taken, dtype=torch.int64, device=cross.device)
            found = Iterates(t, gradient, residual, steps).into(found, rows)
        if found is not None and ends:
            return found
        if taken:
            rho = splitting.rho
            t = _balance(splitting, previous, t, open_.nonzero()[:BALANCED_ROWS, 0])
            offset = offset if splitting.rho == rho else None
        if leaving:
            rows = open_.nonzero()[:, 0] if rows is None else rows[open_]
            cross, t, offset = cross[open_], t[open_], None


def rehearse(splitting: Splitting, cross: Tensor, tolerance: float, limit: int) -> int:
    """Solve a few rows from a cold start: leave ρ where it suits them, and say after how many steps to check the rest.

    That is when most of these are there, so that no check comes before, and only a few rows have to go on after it.
    """
    every = CHECK_EVERY // 2
    for _ in range(REHEARSALS):
        rho, offset = splitting.rho, splitting.cold(cross)
        state = offset
        for step in range(every, min(limit, REHEARSAL_STEPS) + 1, every):
            state, previous = _advance(splitting, offset, state, every)
            p = state.clamp_min(0)
            there = kkt_residual(p, torch.addmm(cross, p, splitting.gram, beta=-1), cross) <= tolerance
            if int(there.sum()) >= REHEARSED * len(cross):
                return step
            if step == CHECK_EVERY:
                _balance(splitting, previous, state, (~there).nonzero()[:BALANCED_ROWS, 0])
                if splitting.rho != rho:
                    break
        else:
            break
    return CHECK_EVERY


def _advance(splitting: Splitting, offset: Tensor, state: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Take some steps from a state that is left as it is; give the last state and the one before it."""
    magnitude, previous = torch.empty_like(state), state
    for step in range(steps):
        torch.abs(state, out=magnitude)
        previous = state
        in_place = state if 0 < step < steps - 1 else None
        state = torch.add(offset, state, alpha=1 - RELAXATION / 2, out=in_place)
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
    state = torch.add(state.clamp_min(0), state.clamp_max(0), alpha=splitting.rho / rho)
    splitting.set_rho(rho)
    return state

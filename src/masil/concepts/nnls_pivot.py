"""Block principal pivoting: the exact end of a non-negative least-squares problem, every row with its own support."""

from dataclasses import dataclass

import torch
from torch import Tensor

from masil.concepts.nnls_admm import kkt_residual

BLOCK_ENTRIES = 1 << 20  # of the sub-matrices factored together: 8 MB in double precision
BACKUP = 3  # full exchanges that may fail to reduce the infeasibilities before single exchanges take over
TRIAL = 20  # exchanges before a row is taken for an ill-conditioned one
COARSE, RATIO = 1e-2, 0.1  # where the weight δ begins for ill-conditioned rows, and how it falls

# On a support F, p_F = f_F C_FF⁻¹ and g = pC − f. p solves the problem when p_F >= 0 and g >= 0 off F. Otherwise the
# coordinates that fail change sides, all of them at once as long as their number falls, else only the last of them,
# which cannot cycle (Júdice & Pires 1994, Kim & Park 2011) when C is positive definite. To make it so whatever the rank
# of Q, the term (δ/2)‖p − c‖² is added, with δ a few rounding errors and c the last estimate: it changes the gradient
# by δ(p − c), and a further round from c = p undoes that (the proximal-point method). Where C_FF is nearly singular
# there may be very many exchanges: there δ begins large, which makes them few, and falls from round to round.


@dataclass(frozen=True)
class Pivoted:
    """Where pivoting left each row."""

    coefficients: Tensor  # [n v]
    residual: Tensor  # [n]
    exchanges: Tensor  # int64 [n]


@dataclass(frozen=True)
class _Exchanged:
    coefficients: Tensor  # [n v]
    support: Tensor  # bool [n v]
    exchanges: Tensor  # int64 [n]
    finished: Tensor  # bool [n]


def pivot(gram: Tensor, cross: Tensor, state: Tensor, tolerance: float, limit: int) -> Pivoted:
    """Exchange coordinates until every row satisfies the KKT conditions, starting from p = max(state, 0)."""
    identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    centre, support = state.clamp_min(0), state > 0
    coefficients, residual = centre.clone(), torch.full_like(cross[:, 0], torch.inf)
    exchanges = torch.zeros(len(cross), dtype=torch.int64, device=cross.device)
    rows = torch.arange(len(cross), device=cross.device)
    for delta, most in _rounds(len(gram), gram.dtype, limit):
        f = cross[rows]
        found = _exchange(gram + delta * identity, f + delta * centre[rows], support[rows], tolerance / 8, most)
        done = found.finished
        centre[rows[done]], support[rows[done]] = found.coefficients[done], found.support[done]
        exchanges[rows] += found.exchanges
        error = kkt_residual(found.coefficients, torch.addmm(f, found.coefficients, gram, beta=-1), f)
        better = error < residual[rows]
        coefficients[rows[better]], residual[rows[better]] = found.coefficients[better], error[better]
        rows = rows[~(residual[rows] <= tolerance)]
        if len(rows) == 0:
            break
    return Pivoted(coefficients, residual, exchanges)


def _rounds(v: int, dtype: torch.dtype, limit: int) -> list[tuple[float, int]]:
    """Give the weights δ and the exchanges allowed with each: at once the smallest, then from coarse to fine."""
    finest = 4 * v**0.5 * torch.finfo(dtype).eps
    rounds = [(finest, min(TRIAL, limit))]
    delta = COARSE
    while delta > finest:
        rounds.append((delta, limit))
        delta *= RATIO
    return [*rounds, (finest, limit)]


def _exchange(gram: Tensor, cross: Tensor, support: Tensor, tolerance: float, limit: int) -> _Exchanged:
    """Pivot on a positive definite matrix, with at most `limit` exchanges of each row."""
    n, v = cross.shape
    rows = torch.arange(n, device=cross.device)
    coefficients, supports, exchanges = torch.zeros_like(cross), support.clone(), torch.zeros_like(rows)
    finished = torch.zeros_like(rows, dtype=torch.bool)
    fewest, patience = torch.full_like(rows, v + 1), torch.full_like(rows, BACKUP)
    for turn in range(limit + 1):
        p = solve_on_support(gram, cross, support, definite=True)
        slack = tolerance * torch.maximum(cross.abs().amax(1), p.amax(1))[:, None]
        wrong = torch.where(support, p, torch.addmm(cross, p, gram, beta=-1)) < -slack
        coefficients[rows], supports[rows], exchanges[rows] = p.clamp_min(0), support, turn
        count = wrong.sum(1)
        open_ = count > 0
        finished[rows[~open_]] = True
        if not bool(open_.any()):
            break
        rows, cross, support, wrong, count = rows[open_], cross[open_], support[open_], wrong[open_], count[open_]
        fewer = count < fewest[rows]
        whole = fewer | (patience[rows] > 0)
        patience[rows] = torch.where(fewer, BACKUP, patience[rows] - 1)
        fewest[rows] = torch.minimum(fewest[rows], count)
        last = wrong & (wrong.flip(1).cumsum(1).flip(1) == 1)
        support = support ^ torch.where(whole[:, None], wrong, last)
    return _Exchanged(coefficients, supports, exchanges, finished)


def solve_on_support(gram: Tensor, right: Tensor, support: Tensor, *, definite: bool = False) -> Tensor:
    """Solve y_F C_FF = b_F for every row, with F the row's support, and y = 0 elsewhere.

    Where C_FF is singular (concepts that repeat, or more of them than features), y_F is b_F times its pseudo-inverse:
    the shortest of the least-squares solutions, in the scale of `gram`.

    Args:
        gram: [v v], positive semi-definite with a unit diagonal.
        right: [n v], the right-hand sides b.
        support: bool [n v].
        definite: whether `gram` is known to be positive definite, so that no sub-matrix need be suspected.

    """
    if gram.device.type == "mps":  # its batched factorisations are partial
        return solve_on_support(gram.cpu(), right.cpu(), support.cpu(), definite=definite).to(gram.device)
    v = len(gram)
    # Rows of a block are padded to its largest support with coordinates v, v + 1, …, where C is the identity and b = 0.
    padded = torch.eye(2 * v, dtype=gram.dtype, device=gram.device)
    padded[:v, :v] = gram
    padded = padded.flatten()
    solution = torch.zeros_like(right)
    sizes, order = support.sum(1).sort(stable=True)
    start = int((sizes == 0).sum())
    while start < len(order):
        # Sizes ascend, so the last row's bounds the block: first guess its length from the first row, then cut.
        stop = min(len(order), start + _rows(int(sizes[start])))
        stop = min(stop, start + _rows(int(sizes[stop - 1])))
        rows, s = order[start:stop], int(sizes[stop - 1])
        member = support[rows]
        row, column = member.nonzero(as_tuple=True)
        place = (member.cumsum(1) - 1)[row, column]
        index = torch.arange(v, v + s, device=gram.device).repeat(len(rows), 1)
        index[row, place] = column
        systems = padded[index.mul(2 * v)[:, :, None] + index[:, None, :]]  # [rows s s]
        b = torch.zeros_like(index, dtype=right.dtype)
        b[row, place] = right[rows[row], column]
        solution[rows[row], column] = _solve(systems, b, definite)[row, place]
        start = stop
    return solution


def _rows(s: int) -> int:
    return max(1, BLOCK_ENTRIES // (s * s))


def _solve(systems: Tensor, right: Tensor, definite: bool) -> Tensor:
    """Solve by Cholesky, and by pseudo-inverse where its last pivots say that the matrix may be singular."""
    factor, failed = torch.linalg.cholesky_ex(systems)
    solution = torch.cholesky_solve(right[:, :, None], factor)[:, :, 0]
    suspect = failed > 0
    eps = torch.finfo(systems.dtype).eps
    if not definite:  # a vanishing pivot carries the rounding errors of all before it: suspect long before eps
        suspect |= ~(factor.diagonal(dim1=1, dim2=2).amin(1).square() > eps**0.5)
    if bool(suspect.any()):
        inverse = torch.linalg.pinv(systems[suspect], rtol=systems.shape[1] * eps, hermitian=True)
        solution[suspect] = (inverse @ right[suspect][:, :, None])[:, :, 0]
    return solution

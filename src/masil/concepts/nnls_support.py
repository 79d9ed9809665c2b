"""Exact solves of many small systems that are sub-matrices of one Gram matrix, one support for each row."""

import torch
from torch import Tensor

BLOCK_ENTRIES = 1 << 20  # of the sub-matrices factored together: 8 MB in double precision


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

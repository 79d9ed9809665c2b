from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from masil.concepts import nnls_pivot
from masil.concepts.nnls_pivot import pivot, solve_on_support


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12), st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_start_ends_at_the_solution(seed: int, v: int, d: int, degenerate: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    Q = torch.randn(v, d, generator=generator, dtype=torch.float64)
    A = torch.randn(6, d, generator=generator, dtype=torch.float64)
    if degenerate:
        Q, A = Q.round(), A.round()
    length = Q.norm(dim=1, keepdim=True)
    Q = Q / torch.where(length > 0, length, 1)
    C, f = Q @ Q.T, A @ Q.T
    C.fill_diagonal_(1)
    start = torch.randn(6, v, generator=generator, dtype=torch.float64) * f.any(1, keepdim=True)
    found = pivot(C, f, start, tolerance=1e-12, limit=1000)
    assert float(found.residual.max()) <= 1e-12
    assert bool((found.coefficients >= 0).all())
    # scipy's own second result is not trusted: with equal concepts it can be smaller than any distance there is.
    reference = torch.from_numpy(np.stack([scipy.optimize.nnls(Q.T.numpy(), a.numpy())[0] for a in A]))
    ours, theirs = ((A - P @ Q).norm(dim=1) for P in (found.coefficients, reference))
    assert bool((ours <= theirs + 1e-8).all())
    if not degenerate:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nearly_singular_problems_end_after_few_exchanges(dtype: torch.dtype) -> None:
    # With the smallest weight δ alone, some of these rows are not done after ten thousand.
    generator = torch.Generator().manual_seed(3)
    Q = torch.randn(56, 15, generator=generator, dtype=torch.float64).relu()
    Q = Q[torch.randint(56, (56,), generator=generator)]
    Q = Q + 1e-4 * torch.randn(56, 15, generator=generator, dtype=torch.float64).abs()
    Q = (Q / Q.norm(dim=1, keepdim=True)).to(dtype)
    f = torch.randn(400, 15, generator=generator, dtype=torch.float64).relu().to(dtype) @ Q.T
    tolerance = 4 * 56**0.5 * torch.finfo(dtype).eps
    found = pivot(Q @ Q.T, f, f, tolerance, limit=1000)
    assert float(found.residual.max()) <= tolerance
    assert int(found.exchanges.max()) < 200


def test_single_exchanges_end_where_full_ones_would_cycle() -> None:
    # A batch of ill-conditioned problems on which exchanging all infeasible coordinates at once does not always end.
    generator = torch.Generator().manual_seed(0)
    Q = torch.randn(20, 10, generator=generator, dtype=torch.float64)
    Q = Q / Q.norm(dim=1, keepdim=True)
    f = torch.randn(500, 10, generator=generator, dtype=torch.float64) @ Q.T
    C = Q @ Q.T
    found = pivot(C, f, f, tolerance=1e-13, limit=2000)
    assert float(found.residual.max()) <= 1e-13
    assert int(found.exchanges.max()) > 20


def gram(v: int, d: int, seed: int) -> Tensor:
    Q = torch.randn(v, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    Q = Q / Q.norm(dim=1, keepdim=True)
    return Q @ Q.T


@given(st.integers(0, 20), st.integers(1, 9), st.integers(0, 2**32), st.booleans())
@settings(deadline=None)
def test_each_row_is_the_pseudo_inverse_of_its_own_sub_matrix(n: int, v: int, seed: int, singular: bool) -> None:
    C = gram(v, max(1, v // 2) if singular else v + 5, seed)
    generator = torch.Generator().manual_seed(seed)
    b = torch.randn(n, v, generator=generator, dtype=torch.float64)
    support = torch.rand(n, v, generator=generator) < 0.6
    y = solve_on_support(C, b, support)
    assert not y[~support].any()
    for row in range(n):
        F = support[row]
        expected = torch.linalg.pinv(C[F][:, F], rtol=1e-12, hermitian=True) @ b[row, F]
        torch.testing.assert_close(y[row, F], expected, rtol=1e-6, atol=1e-8)


def test_blocks_of_any_size_give_the_same_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    C = gram(10, 20, 0)
    generator = torch.Generator().manual_seed(0)
    b = torch.randn(300, 10, generator=generator, dtype=torch.float64)
    support = torch.rand(300, 10, generator=generator) < torch.rand(300, 1, generator=generator)
    whole = solve_on_support(C, b, support)
    solve, entries = nnls_pivot._solve, []

    def counting(systems: Tensor, *rest: Any) -> Tensor:
        entries.append(systems.numel())
        return solve(systems, *rest)

    monkeypatch.setattr(nnls_pivot, "BLOCK_ENTRIES", 150)
    monkeypatch.setattr(nnls_pivot, "_solve", counting)
    torch.testing.assert_close(solve_on_support(C, b, support), whole, rtol=0, atol=1e-12)
    assert max(entries) <= 150

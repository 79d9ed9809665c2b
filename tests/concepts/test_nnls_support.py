from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from masil.concepts import nnls_support
from masil.concepts.nnls_support import solve_on_support


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
    solve, entries = nnls_support._solve, []

    def counting(systems: Tensor, *rest: Any) -> Tensor:
        entries.append(systems.numel())
        return solve(systems, *rest)

    monkeypatch.setattr(nnls_support, "BLOCK_ENTRIES", 150)
    monkeypatch.setattr(nnls_support, "_solve", counting)
    torch.testing.assert_close(solve_on_support(C, b, support), whole, rtol=0, atol=1e-12)
    assert max(entries) <= 150

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.concepts import nnls, nnls_gram
from masil.errors import InputError


@given(st.integers(0, 6), st.integers(1, 8), st.integers(1, 8), st.integers(0, 2**32))
@settings(deadline=None)
def test_the_gram_form_gives_the_reconstructions_of_the_plain_form(n: int, d: int, v: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(n, d, generator=generator, dtype=torch.float64)
    Q = torch.randn(v, d, generator=generator, dtype=torch.float64).relu()
    found, plain = nnls_gram(Q @ Q.T, A @ Q.T), nnls(A, Q)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.coefficients @ Q, plain.coefficients @ Q, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.multipliers, plain.multipliers, atol=1e-10, rtol=0)


def test_it_solves_for_the_concepts_as_well_as_for_the_coefficients() -> None:
    generator = torch.Generator().manual_seed(0)
    P, Q = torch.rand(50, 4, generator=generator), torch.rand(4, 12, generator=generator)
    found = nnls_gram(P.T @ P, (P @ Q).T @ P)
    torch.testing.assert_close(found.coefficients.T, Q, atol=1e-3, rtol=0)


def test_it_starts_warm() -> None:
    generator = torch.Generator().manual_seed(0)
    Q = torch.rand(6, 20, generator=generator, dtype=torch.float64)
    cross = torch.rand(30, 20, generator=generator, dtype=torch.float64) @ Q.T
    first = nnls_gram(Q @ Q.T, cross)
    assert int(nnls_gram(Q @ Q.T, cross, warm=first).iterations.max()) == 0


def test_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(
        InputError, match=r"takes a Gram matrix \[v v\] and products \[n v\], but got \[3, 3\] and \[5, 4\]"
    ):
        nnls_gram(torch.eye(3), torch.rand(5, 4))
    with pytest.raises(InputError, match="Gram matrix is float32 on cpu but the products float64 on cpu"):
        nnls_gram(torch.eye(4), torch.rand(5, 4, dtype=torch.float64))
    with pytest.raises(InputError, match="Gram matrix is int64; convert it to float32 or float64"):
        nnls_gram(torch.eye(4, dtype=torch.int64), torch.ones(5, 4, dtype=torch.int64))
    with pytest.raises(InputError, match="Gram matrix is not positive semi-definite; is it the product"):
        nnls_gram(torch.tensor([[1.0, 3.0], [3.0, 1.0]]), torch.rand(5, 2))
    with pytest.raises(InputError, match=r"warm start has shape \[2, 2\] but the problem needs \[5, 2\]"):
        nnls_gram(torch.eye(2), torch.rand(5, 2), warm=torch.rand(2, 2))
    with pytest.raises(InputError, match="NaN or infinite"):
        nnls_gram(torch.full((2, 2), torch.nan), torch.rand(5, 2))

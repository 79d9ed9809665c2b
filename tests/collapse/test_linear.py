import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from masil.collapse import LinearMap, balanced_factors
from masil.errors import InputError


def matrix(k, d, seed=0):
    return torch.randn(k, d, generator=torch.Generator().manual_seed(seed))


def test_it_multiplies_by_its_weight_and_without_one_only_takes_the_length_away():
    a, weight = matrix(5, 6), matrix(3, 6, 1)
    assert torch.equal(LinearMap(6)(a), functional.normalize(a))
    assert LinearMap(6).state() == {}
    torch.testing.assert_close(LinearMap.from_weight(weight).transform(a), a @ weight.T)
    torch.testing.assert_close(LinearMap(6, 4).transform(a), a[:, :4])
    assert LinearMap(6, 4).weight.requires_grad


@settings(deadline=None)
@given(k=st.integers(1, 8), d=st.integers(1, 8), seed=st.integers(0, 99))
def test_factors_multiply_to_the_matrix_and_are_balanced(k, d, seed):
    W = matrix(k, d, seed)
    outer, inner = balanced_factors(W)
    assert outer.shape == (k, min(k, d))
    assert inner.shape == (min(k, d), d)
    torch.testing.assert_close(outer @ inner, W, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outer.T @ outer, inner @ inner.T, atol=1e-5, rtol=1e-5)
    a = matrix(50, d, seed + 1)  # the two layers classify as the one did
    torch.testing.assert_close(LinearMap.from_weight(inner).transform(a) @ outer.T, a @ W.T, atol=5e-5, rtol=1e-5)


def test_what_is_no_matrix_is_refused():
    with pytest.raises(InputError, match=r"linear map needs a matrix, but was given the shape \[6\]"):
        LinearMap.from_weight(torch.ones(6))
    with pytest.raises(InputError, match=r"Only a finite matrix can be factorised"):
        balanced_factors(torch.full((2, 2), float("nan")))

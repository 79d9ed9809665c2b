import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.training.muon import CUBIC, LINEAR, QUINTIC, Muon, as_matrix, orthogonal


@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**31))
def test_rounds_send_each_singular_value_through_the_polynomial(b: int, m: int, n: int, rounds: int, seed: int) -> None:
    X = torch.randn(b, m, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for matrix, found in zip(X.numpy(), orthogonal(X, rounds).numpy(), strict=True):
        U, s, Vt = np.linalg.svd(matrix / np.linalg.norm(matrix), full_matrices=False)
        for _ in range(rounds):
            s = LINEAR * s + CUBIC * s**3 + QUINTIC * s**5
        np.testing.assert_allclose(found, U * s @ Vt, atol=1e-9)


def test_five_rounds_make_a_matrix_about_orthogonal_in_float32() -> None:
    X = torch.randn(1, 64, 576, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(X, 5))
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3


def test_no_gradient_no_step_and_no_division_by_zero() -> None:
    still, zero = (torch.nn.Parameter(torch.ones(4, 2, 3, 3)) for _ in range(2))
    zero.grad = torch.zeros_like(zero)
    Muon([still, zero], lr=0.1).step()
    assert torch.equal(still, torch.ones(4, 2, 3, 3))
    assert torch.isfinite(zero).all()


def test_a_step_is_what_its_formula_says() -> None:
    draw = torch.Generator().manual_seed(1)
    start, first, second = (torch.randn(6, 2, 3, 3, generator=draw) for _ in range(3))
    weight = torch.nn.Parameter(start.clone())
    muon = Muon([weight], lr=0.2, momentum=0.5, rounds=3)
    expected = start.flatten(1)
    momentum = torch.zeros(6, 18)
    for gradient in (first, second):
        weight.grad = gradient.clone()
        muon.step()
        momentum = 0.5 * momentum + gradient.flatten(1)
        turned = orthogonal((gradient.flatten(1) + 0.5 * momentum)[None])[0]
        expected = 6**0.5 * expected / expected.norm() - 0.2 * turned
    torch.testing.assert_close(weight.detach().flatten(1), expected)


def test_neither_memory_layout_nor_company_changes_a_step() -> None:
    draw = torch.Generator().manual_seed(2)
    starts, gradients = (torch.randn(3, 8, 4, 3, 3, generator=draw) for _ in range(2))
    alone = []
    for start, gradient in zip(starts, gradients, strict=True):
        weight = torch.nn.Parameter(start.clone())
        weight.grad = gradient.clone()
        Muon([weight], lr=0.1).step()
        alone.append(weight.detach())
    last = [torch.nn.Parameter(start.clone(memory_format=torch.channels_last)) for start in starts]
    for weight, gradient in zip(last, gradients, strict=True):
        weight.grad = gradient.clone(memory_format=torch.channels_last)
    Muon(last, lr=0.1).step()
    for one, other in zip(alone, last, strict=True):
        torch.testing.assert_close(one, other.detach())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_weight_is_seen_as_a_matrix_without_a_copy(layout: torch.memory_format) -> None:
    weight = torch.zeros(4, 2, 3, 3).contiguous(memory_format=layout)
    as_matrix(weight).add_(1)
    assert torch.equal(weight, torch.ones(4, 2, 3, 3))

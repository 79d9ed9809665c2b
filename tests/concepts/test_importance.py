import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from masil.concepts.importance import gradient_importance, sobol_total
from masil.errors import InputError


def ishigami(u: Tensor, a: float = 7.0, b: float = 0.1) -> Tensor:
    x = (2 * u - 1) * math.pi
    return x[:, 0].sin() + a * x[:, 1].sin() ** 2 + b * x[:, 2] ** 4 * x[:, 0].sin()


def test_total_indices_of_the_ishigami_function() -> None:
    a, b = 7.0, 0.1
    variance = a**2 / 8 + b * math.pi**4 / 5 + b**2 * math.pi**8 / 18 + 0.5
    interaction = b**2 * math.pi**8 * (1 / 18 - 1 / 50)
    first = 0.5 * (1 + b * math.pi**4 / 5) ** 2
    expected = torch.tensor([[first + interaction, a**2 / 8, interaction]], dtype=torch.float64) / variance
    found = sobol_total(ishigami, torch.ones(1, 3, dtype=torch.float64), n_samples=4096)
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=0)


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6), st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_total_indices_of_a_linear_score_are_its_shares_of_variance(weights: list[float], seed: int) -> None:
    w = torch.tensor(weights, dtype=torch.float64)
    p = torch.linspace(0.5, 2, len(w), dtype=torch.float64)[None]
    share = (w * p).square()
    found = sobol_total(lambda c: c @ w, p, n_samples=1024, seed=seed)
    torch.testing.assert_close(found, share / share.sum().clamp_min(1e-300), atol=0.03, rtol=0)


def test_absent_and_ignored_concepts_matter_not_at_all() -> None:
    p = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    found = sobol_total(lambda c: c[:, 0] + c[:, 1], p)
    assert found[0].tolist() == pytest.approx([1.0, 0.0, 0.0], abs=0.05)
    assert not found[0, 1:].any()
    assert not found[1].any()


def test_a_constant_score_has_no_indices() -> None:
    assert not sobol_total(lambda c: torch.full_like(c[:, 0], 3.7), torch.ones(1, 4)).any()


def test_interactions_count_for_both() -> None:
    # Y = m₁m₂: Var = 1/9 − 1/16, total index of each = 1 − Var(m/2)/Var(Y) = 4/7.
    found = sobol_total(lambda c: c[:, 0] * c[:, 1], torch.ones(1, 2, dtype=torch.float64), n_samples=4096)
    assert found[0].tolist() == pytest.approx([4 / 7, 4 / 7], abs=5e-3)


def test_the_seed_decides() -> None:
    p = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    first, same, other = (sobol_total(lambda c: c.square().sum(1), p, 64, seed) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_the_score_is_asked_without_a_graph_and_coefficients_stay_as_they_are() -> None:
    p = torch.rand(1, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    kept = p.detach().clone()
    assert not sobol_total(lambda c: c.sum(1), p, 8).requires_grad
    gradient_importance(lambda c: c.sum(1), p)
    assert torch.equal(p.detach(), kept)
    assert p.grad is None


def test_gradient_importances_of_a_linear_score_sum_to_it() -> None:
    generator = torch.Generator().manual_seed(0)
    p, w = torch.rand(5, 4, generator=generator), torch.randn(4, generator=generator)
    with torch.no_grad():
        found = gradient_importance(lambda c: c @ w, p)
    torch.testing.assert_close(found, p * w)
    torch.testing.assert_close(found.sum(1), p @ w)


def test_gradient_importance_agrees_with_finite_differences() -> None:
    p = torch.rand(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def score(c: Tensor) -> Tensor:
        return (c[:, 0] * c[:, 1]).sin() + c[:, 2].exp() * c[:, 3]

    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    expected = torch.stack([(score(p + s) - score(p - s)) / 2e-6 for s in step], 1) * p
    torch.testing.assert_close(gradient_importance(score, p), expected, rtol=1e-6, atol=1e-8)


def test_bad_input_is_refused_in_a_sentence() -> None:
    p = torch.rand(2, 3)
    with pytest.raises(InputError, match=r"score of coefficients \[64, 3\] must be \[64\], but is \[64, 3\]; does it"):
        sobol_total(lambda c: c, p, 64)
    with pytest.raises(InputError, match=r"Coefficients must be floating-point \[n v\], but are torch.int64 \[2, 3\]"):
        gradient_importance(lambda c: c.sum(1), torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(InputError, match="at least 2 samples, but n_samples is 1"):
        sobol_total(lambda c: c.sum(1), p, 1)
    with pytest.raises(InputError, match="for up to 10600 concepts, but there are 10601"):
        sobol_total(lambda c: c.sum(1), torch.rand(1, 10601), 2)

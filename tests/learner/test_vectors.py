"""Fine-tuning's closed forms minimise what they claim to, and the paper's iterations approach them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from masil.learner.vectors import literal, literal_by_descent, posterior, posterior_by_descent, sgdr, teen


def problem(seed: int, n: int, d: int):
    generator = torch.Generator().manual_seed(seed)
    rows = functional.normalize(torch.randn(n, d, generator=generator).double() + 1)
    weights = torch.rand(n, generator=generator).double() + 0.1
    induced = functional.normalize(torch.randn(1, d, generator=generator).double() + 1)[0]
    return rows, weights / weights.sum(), induced


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(2, 12), st.sampled_from([1e-3, 0.1, 0.5, 1.0, 10.0]))
@settings(max_examples=40, deadline=None)
def test_literal_solves_the_normal_equations(seed, n, d, alpha):
    rows, weights, induced = problem(seed, n, d)
    w = literal(rows, weights, induced, alpha)
    left = rows.T @ (weights[:, None] * rows) + alpha * torch.eye(d, dtype=torch.float64)
    expected = torch.linalg.solve(left, rows.T @ weights + alpha * induced)
    torch.testing.assert_close(w, expected, rtol=1e-8, atol=1e-8)


def test_literal_without_a_prior_is_the_nearest_exact_fit():
    rows, weights, induced = problem(0, 3, 10)
    w = literal(rows, weights, induced, 0.0)
    torch.testing.assert_close(rows @ w, torch.ones(3).double())
    expected = induced + torch.linalg.lstsq(rows, (1 - rows @ induced)[:, None]).solution[:, 0]
    torch.testing.assert_close(w, expected)


@pytest.mark.parametrize("alpha", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("n", [1, 5])
def test_descent_approaches_the_literal_minimiser(alpha, n):
    rows, weights, induced = problem(1, n, 30)
    exact = literal(rows, weights, induced, alpha)
    found = literal_by_descent(rows, weights, induced, alpha)
    assert float((found - exact).norm()) < 1e-4 * max(1.0, float((induced - exact).norm()))
    assert float((induced - exact).norm()) > 1e-2  # there was a way to go


def test_posterior_is_the_minimiser_and_descent_approaches_it():
    generator = torch.Generator().manual_seed(0)
    m, r = torch.randn(4, 9, generator=generator).double(), torch.randn(4, 9, generator=generator).double()
    alpha = torch.tensor([0.0, 0.3, 1.0, 5.0]).double()
    w = posterior(m, r, alpha / (1 + alpha)).requires_grad_()
    loss = ((w - m).square().sum(1) + alpha * (w - r).square().sum(1)).sum()
    (gradient,) = torch.autograd.grad(loss, w)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))
    torch.testing.assert_close(posterior_by_descent(m, r, alpha / (1 + alpha)), w.detach(), rtol=0, atol=1e-6)


def test_the_two_readings_agree_where_shots_and_prior_do():
    rows, weights, _ = problem(2, 1, 12)
    torch.testing.assert_close(literal(rows, weights, rows[0], 0.7), rows[0])
    torch.testing.assert_close(posterior(rows, rows, torch.tensor([0.7]).double()), rows)


def test_warm_restarts_begin_each_cycle_at_the_full_rate():
    rates = []
    last = [torch.zeros(1)]

    def gradient(w):
        rates.append(float(w - last[0]))
        last[0] = w
        return -torch.ones(1)

    sgdr(gradient, torch.zeros(1), torch.tensor(0.5))
    steps = torch.tensor(rates[1:])
    assert [round(float(steps[at]), 4) for at in (0, 10, 30, 70)] == [0.5] * 4
    assert float(steps[9]) < 0.02


def test_teen_leans_towards_similar_base_classes():
    base = torch.eye(3)
    p = functional.normalize(torch.tensor([[1.0, 0.2, 0.0]]))
    moved = teen(p, base, 0.3)
    assert moved[0] @ base[0] / moved.norm() > p[0] @ base[0]
    torch.testing.assert_close(teen(p, base, 0.0), p)
    expected = 0.7 * p + 0.3 * torch.softmax(16 * p @ base.T, 1) @ base
    torch.testing.assert_close(moved, expected)
    assert teen(p, base[:0], 0.3) is p

"""The weight of the prior brings the mixture closest to the truth, and depends on the shots."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from masil.learner.prior import FALLBACK, SHOTS, PriorWeight, measure


def world(noise: float, bias: float, classes: int = 60, n: int = 40, d: int = 30):
    """Shots scatter by `noise` around μ, reconstructions sit at μ plus a fixed error of size `bias` per class."""
    generator = torch.Generator().manual_seed(3)
    mu = torch.randn(classes, d, generator=generator)
    error = bias * torch.randn(classes, d, generator=generator)
    labels = torch.arange(classes).repeat_interleave(n)
    x = mu[labels] + noise * torch.randn(len(labels), d, generator=generator)
    return x, labels, (mu + error)[labels]


def test_it_is_the_precision_of_the_prior_among_both():
    x, labels, r = world(noise=1.0, bias=0.6)
    found, same, other = (measure(x, r, labels, seed=seed) for seed in (0, 0, 2))
    assert found == same != other
    assert found.shots == SHOTS
    for k, a in zip(found.shots, found.weights, strict=True):
        # Errors of m and r are independent here, with variances 1/k and .36: a = (1/k) / (1/k + .36).
        assert a == pytest.approx((1 / k) / (1 / k + 0.36), abs=0.04)
    # And the mixture is nearer to the truth than with any other weight.
    a = found.at(5)
    generator = torch.Generator().manual_seed(3)
    mu = torch.randn(60, 30, generator=generator)
    m = torch.stack([x[labels == c][:5].mean(0) for c in range(60)])
    prior = torch.stack([r[labels == c][0] for c in range(60)])
    errors = {b: float(((1 - b) * m + b * prior - mu).norm()) for b in (a, 0.0, a - 0.15, a + 0.15, 1.0)}
    assert min(errors, key=errors.__getitem__) == a


def test_shots_a_class_cannot_spare_are_not_measured():
    x, labels, r = world(1.0, 0.6, n=6)
    found = measure(x, r, labels, seed=0)
    assert found.shots == (1, 2, 5)
    alone = measure(x[::6], r[::6], labels[::6], seed=0)
    assert alone == PriorWeight((1,), (FALLBACK,))


def test_between_measured_shots_it_is_linear_in_one_over_k():
    curve = PriorWeight((1, 2, 5), (0.6, 0.4, 0.2))
    assert [curve.at(k) for k in (1, 2, 5)] == pytest.approx([0.6, 0.4, 0.2])
    assert curve.at(3) == pytest.approx(0.2 + 0.2 * (1 / 3 - 1 / 5) / (1 / 2 - 1 / 5))
    assert curve.at(10) == pytest.approx(0.1)
    assert curve.at(10**9) < 1e-6


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.integers(1, 500))
def test_it_stays_a_share(weights, k):
    assert 0 <= PriorWeight((1, 5, 20), tuple(weights)).at(k) <= 1

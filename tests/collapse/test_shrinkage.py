import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import OAS
from torch import from_numpy

from masil.collapse.moments import ClassMoments
from masil.collapse.shrinkage import CANDIDATES, choose_shrinkage, oracle_approximating, sampling_noise, separation


def samples(n, d, seed):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n, d)) * np.exp(generator.uniform(-2, 2, d))


@settings(deadline=None)
@given(n=st.integers(2, 60), d=st.integers(2, 30), seed=st.integers(0, 999))
def test_the_oracle_approximation_agrees_with_scikit_learn(n, d, seed):
    x = samples(n, d, seed)
    assert oracle_approximating(from_numpy(x.T @ x / n), n) == pytest.approx(
        OAS(assume_centered=True).fit(x).shrinkage_
    )


def test_the_oracle_share_falls_with_samples_and_is_whole_for_a_sphere():
    shares = [oracle_approximating(from_numpy(np.cov(samples(n, 20, 0).T)), n) for n in (10, 100, 1000, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.01
    assert oracle_approximating(from_numpy(np.eye(5)), 100) == 1


@pytest.mark.parametrize(("d", "f"), [(200, 400), (200, 2000), (300, 6000)])
def test_equal_variances_seem_to_spread_by_the_noise_of_sampling(d, f):
    x = np.random.default_rng(d + f).standard_normal((f, d))
    values = np.linalg.eigvalsh(x.T @ x / f)
    assert sampling_noise(d, f) == pytest.approx((values[-1] - values[0]) / 2 / values.mean(), rel=0.1)


def world(d=6, seed=0):
    """Give roots of a between-class and a within-class covariance that share no axes."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(d, d, generator=generator, dtype=torch.float64) * scale for scale in (0.7, 1.0)]


def draw_classes(k, n, roots, seed):
    generator = torch.Generator().manual_seed(seed)
    d = len(roots[0])
    labels = torch.arange(k * n) % k
    means = torch.randn(k, d, generator=generator, dtype=torch.float64) @ roots[0]
    moments = ClassMoments(k, d)
    moments.add(means[labels] + torch.randn(k * n, d, generator=generator, dtype=torch.float64) @ roots[1], labels)
    return moments


def simulated(covariance, s, roots, shots, trials=400_000):
    """Play it: draw pairs of classes, prototypes and an image, whiten, and compare squared distances."""
    generator = torch.Generator().manual_seed(9)
    values, V = torch.linalg.eigh(covariance / covariance.diagonal().mean() + s * torch.eye(len(covariance)))
    root = V * values.rsqrt()

    def normal(factor):
        return torch.randn(trials, len(root), generator=generator, dtype=torch.float64) @ factor @ root

    delta, image, own, other = (
        normal(roots[0] * 2**0.5),
        normal(roots[1]),
        *(normal(roots[1] / shots**0.5) for _ in range(2)),
    )
    score = (delta + image - other).square().sum(1) - (image - own).square().sum(1)
    size = delta.square().sum(1)
    return float(size.mean() ** 2 / (score - size).var()), float(score.mean() / size.mean())


@pytest.mark.parametrize("shots", [1, 5])
def test_separation_is_the_signal_to_noise_ratio_of_a_simulation(shots):
    roots = world()
    covariance = torch.diag(torch.tensor([3.0, 1.0, 0.5, 0.2, 0.1, 2.0], dtype=torch.float64))
    computed = separation(covariance, draw_classes(20_000, 10, roots, 1), shots)
    for index in (0, 14, 25):
        expected, unbiased = simulated(covariance, CANDIDATES[index], roots, shots)
        assert unbiased == pytest.approx(1, abs=0.02)
        assert float(computed[index]) == pytest.approx(expected, rel=0.03)


def test_few_images_give_the_same_ratio_on_average():
    roots = world(20)
    covariance = torch.linspace(0.1, 3, 20, dtype=torch.float64).diag()
    exact = separation(covariance, draw_classes(20_000, 5, roots, 1), 1)
    few = torch.stack([separation(covariance, draw_classes(24, 3, roots, seed), 1) for seed in range(60)]).mean(0)
    torch.testing.assert_close(few, exact, atol=0, rtol=0.06)


@pytest.mark.parametrize("seed", [0, 11])
def test_the_choice_is_the_candidate_that_separates_both_halves_best(seed):
    roots = world(seed=seed)
    halves = draw_classes(5, 4, roots, 1), draw_classes(4, 4, roots, 2)
    first, second = separation(halves[0].within(), halves[1], 5), separation(halves[1].within(), halves[0], 5)
    assert int(first.argmax()) != int(second.argmax())
    both = first + second
    assert float(both[CANDIDATES.index(choose_shrinkage(halves, 5))]) == pytest.approx(float(both.max()), rel=1e-5)


def test_a_single_class_falls_back_on_the_nearest_covariance():
    halves = draw_classes(1, 12, world(), 1), ClassMoments(0, 6)
    share = oracle_approximating(halves[0].within(), 11)
    assert 0.1 < share < 0.9
    assert choose_shrinkage(halves, 5) == pytest.approx(share / (1 - share))


def test_classes_that_do_not_scatter_have_no_ratio():
    still = ClassMoments(3, 4)
    still.add(torch.eye(4, dtype=torch.float64)[[0, 1, 2, 0, 1, 2]], torch.arange(6) % 3)
    assert separation(still.within(), still, 5).tolist() == [0.0] * len(CANDIDATES)
    assert separation(torch.eye(4, dtype=torch.float64), still, 5).tolist() == [0.0] * len(CANDIDATES)

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis

from masil.errors import InputError
from masil.methods import FeCAM, PlainFeCAM, Queries, Samples
from masil.methods.fecam import blended_covariance, calibrated_means, scatter, shrunk_correlation, similarity
from masil.methods.ranpac import gaussian

BASE, NOVEL = torch.arange(4).repeat(20), torch.arange(4, 6).repeat(3)


def rows(labels: torch.Tensor, seed: int) -> torch.Tensor:
    centres = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    return centres[labels] + 0.5 * torch.rand(len(labels), 5, generator=torch.Generator().manual_seed(seed))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_predictions_are_the_least_mahalanobis_distance_of_tukey_powers(task) -> None:
    method = PlainFeCAM(power=0.3, diagonal=0.7, off_diagonal=0.4)
    method.fit(Samples(rows(BASE, 1), labels=BASE), task())
    method.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    asked = rows(torch.arange(6).repeat(10), 3)
    raw, novel = rows(BASE, 1).double().numpy(), rows(NOVEL, 2).double().numpy()
    base = raw**0.3
    means = [raw[c == BASE].mean(0) ** 0.3 for c in range(4)] + [novel[c == NOVEL].mean(0) ** 0.3 for c in (4, 5)]
    # Classes of equal size: the pooled covariance is the mean of the classes' own.
    covariance = np.mean([np.cov(base[c == BASE].T) for c in range(4)], axis=0)
    off = ~np.eye(5, dtype=bool)
    shrunk = covariance + 0.7 * np.diag(covariance).mean() * np.eye(5) + 0.4 * covariance[off].mean() * off
    deviation = np.sqrt(np.diag(shrunk))
    inverse = np.linalg.inv(shrunk / np.outer(deviation, deviation))
    x = unit(asked.double().numpy() ** 0.3)
    distances = np.array([[mahalanobis(row, unit(mean), inverse) for mean in means] for row in x])
    chosen = np.take_along_axis(distances, method.predict(Queries(asked)).numpy()[:, None], 1)[:, 0]
    np.testing.assert_allclose(chosen, distances.min(1), rtol=1e-4)


def test_the_correlation_has_a_diagonal_of_ones_and_nothing_off_it_where_shrinkage_is_all() -> None:
    A = torch.rand(9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    correlation = shrunk_correlation(A.T @ A, 1.0, 1.0)
    assert torch.allclose(correlation.diagonal(), torch.ones(6, dtype=torch.float64))
    assert torch.allclose(shrunk_correlation(A.T @ A, 1e9, 0.0), torch.eye(6, dtype=torch.float64), atol=1e-6)


def test_one_image_a_class_and_powers_that_make_no_sense_are_refused(task) -> None:
    with pytest.raises(InputError, match="Each of the 3 base classes has one image, so their scatter is unknown"):
        PlainFeCAM().fit(Samples(torch.rand(3, 5), labels=torch.arange(3)), task(3))
    with pytest.raises(InputError, match=r"The power is 0, but must lie in \(0, 1\]"):
        FeCAM(power=0)
    with pytest.raises(InputError, match="A base class has one image, so its scatter is unknown"):
        FeCAM().fit(Samples(torch.rand(3, 5), labels=torch.arange(3)), task(3))


def test_every_class_has_a_distance_of_its_own(task) -> None:
    method = FeCAM(power=0.3, keep=1.0)
    method.fit(Samples(rows(BASE, 1), labels=BASE), task())
    x = unit(rows(BASE, 1).double().numpy() ** 0.3)
    asked = rows(torch.arange(4).repeat(10), 3)
    tested = unit(asked.double().numpy() ** 0.3)
    distances = []
    for c in range(4):
        correlation = shrunk_correlation(torch.from_numpy(np.cov(x[c == BASE].T)), 1.0, 1.0).numpy()
        mean = unit(rows(BASE, 1)[c == BASE].mean(0).double().numpy() ** 0.3)
        distances.append([mahalanobis(row, mean, np.linalg.inv(correlation)) for row in tested])
    chosen = np.take_along_axis(np.array(distances), method.predict(Queries(asked)).numpy()[None], 0)[0]
    np.testing.assert_allclose(chosen, np.min(distances, axis=0), rtol=1e-4)


def test_a_new_class_borrows_mean_and_covariance_from_what_it_resembles() -> None:
    base = torch.eye(3, 5) + 0.1
    shares = similarity(base[:2], base)
    torch.testing.assert_close(shares.sum(1), torch.ones(2))
    assert shares.argmax(1).tolist() == [0, 1]
    assert float(shares[0, 0]) > 0.99
    new = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(calibrated_means(new, base, 1.0), new / 2**0.5)
    factors = scatter(rows(BASE, 1), BASE)
    for label, factor in enumerate(factors):
        np.testing.assert_allclose(factor.T @ factor, np.cov(rows(BASE, 1)[label == BASE].T), atol=1e-6)
    weights = torch.tensor([0.5, 0.5, 0.0, 0.0])
    expected = (factors[0].T @ factors[0] + factors[1].T @ factors[1]) / 2
    torch.testing.assert_close(blended_covariance(weights, factors), expected)


def test_drawn_features_have_the_mean_and_covariance_they_are_drawn_for() -> None:
    factors = scatter(rows(BASE, 1), BASE)[:2]
    drawn = gaussian(torch.full((5,), 9.0), factors, 40_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(drawn.mean(0), torch.full((5,), 9.0), atol=0.02, rtol=0)
    torch.testing.assert_close(torch.cov(drawn.T), sum(f.T @ f for f in factors), atol=0.005, rtol=0.1)
    assert float(gaussian(torch.zeros(5), factors, 100, torch.Generator().manual_seed(0)).min()) == 0
    torch.testing.assert_close(
        gaussian(torch.ones(5), [torch.zeros(2, 5)], 3, torch.Generator().manual_seed(0)), torch.ones(3, 5)
    )

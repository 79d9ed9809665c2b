import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis

from masil.errors import InputError
from masil.methods import FeCAM, Queries, Samples
from masil.methods.fecam import shrunk_correlation

BASE, NOVEL = torch.arange(4).repeat(20), torch.arange(4, 6).repeat(3)


def rows(labels: torch.Tensor, seed: int) -> torch.Tensor:
    centres = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    return centres[labels] + 0.5 * torch.rand(len(labels), 5, generator=torch.Generator().manual_seed(seed))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_predictions_are_the_least_mahalanobis_distance_of_tukey_powers(task) -> None:
    method = FeCAM(power=0.3, diagonal=0.7, off_diagonal=0.4)
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
        FeCAM().fit(Samples(torch.rand(3, 5), labels=torch.arange(3)), task(3))
    with pytest.raises(InputError, match=r"The power is 0, but must lie in \(0, 1\]"):
        FeCAM(power=0)

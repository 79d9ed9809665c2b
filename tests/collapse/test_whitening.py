import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import fractional_matrix_power
from sklearn.covariance import OAS
from torch.nn import functional

from masil.collapse import Whitening, nc_measures
from masil.collapse.whitening import inverse_root
from masil.errors import InputError, StorageError


def anisotropic(k=20, n=30, d=24, seed=0, spread=4.0):
    """Draw classes whose scatter is large along a few directions that say nothing about the class."""
    generator = torch.Generator().manual_seed(seed)
    centres = 6 + torch.randn(k, d, generator=generator)
    loud = torch.linalg.qr(torch.randn(d, d, generator=generator)).Q[:4]
    labels = torch.arange(k * n) % k
    noise = 0.5 * torch.randn(k * n, d, generator=generator)
    noise = noise + spread * torch.randn(k * n, 4, generator=generator) @ loud
    return (centres[labels] + noise).clamp_min(0), labels


def plain_whitening(a, labels, shrinkage):
    """By definition, with loops over classes and scipy's matrix power."""
    x, y = a.double().numpy(), labels.numpy()
    classes = np.unique(y)
    means = np.stack([x[y == c].mean(0) for c in classes])
    residuals = np.concatenate([x[y == c] - means[c] for c in classes])
    covariance = residuals.T @ residuals / (len(x) - len(classes))
    m = np.trace(covariance) / len(covariance)
    g = (x - means.mean(0)) @ fractional_matrix_power(covariance + shrinkage * m * np.eye(len(covariance)), -0.5)
    return torch.from_numpy(g / np.linalg.norm(g, axis=1, keepdims=True)).float()


@settings(deadline=None, max_examples=30)
@given(shrinkage=st.sampled_from([0.0, 0.1, 1.0, 30.0]), seed=st.integers(0, 99))
def test_it_computes_its_formula(shrinkage, seed):
    a, labels = anisotropic(k=4, n=15, d=6, seed=seed)
    g = Whitening.fit(a, labels, shrinkage)
    torch.testing.assert_close(g(a), plain_whitening(a, labels, shrinkage), atol=1e-4, rtol=0)
    assert g.shrinkage == shrinkage


def test_without_shrinkage_every_class_scatters_alike_in_all_directions():
    a, labels = anisotropic()
    g = Whitening.fit(a, labels, shrinkage=0)
    x = g.transform(a).double()
    means = torch.stack([x[labels == c].mean(0) for c in range(20)])
    residuals = x - means[labels]
    covariance = residuals.T @ residuals / (len(a) - 20)
    torch.testing.assert_close(covariance / covariance.diagonal().mean(), torch.eye(24).double(), atol=1e-3, rtol=0)
    torch.testing.assert_close(means.mean(0), torch.zeros(24).double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shrinkage", ["auto", "sampling", 0.1])
def test_new_classes_are_told_apart_better_and_variability_falls(seed, shrinkage):
    a, labels = anisotropic(k=40, seed=seed)
    base, novel = labels < 20, labels >= 20
    g = Whitening.fit(a[base], labels[base], shrinkage=shrinkage)
    shots = torch.arange(len(a)) < 40 * 5
    accuracy = []
    for z in (functional.normalize(a), g(a)):
        means = torch.stack([z[(labels == c) & shots].mean(0) for c in range(20, 40)])
        chosen = 20 + (z[novel & ~shots] @ functional.normalize(means).T).argmax(1)
        accuracy.append(float((chosen == labels[novel & ~shots]).float().mean()))
    assert accuracy[1] > accuracy[0] + 0.1
    before, after = (
        nc_measures(z[base], labels[base], torch.ones(20, 24)).nc1_ratio for z in (functional.normalize(a), g(a))
    )
    assert after < 0.5 * before


def test_automatic_shrinkage_falls_with_more_images():
    a, labels = anisotropic(k=20, n=400)
    few = torch.arange(len(a)) < 20 * 4
    assert Whitening.fit(a[few], labels[few]).shrinkage > Whitening.fit(a, labels).shrinkage


def test_the_shrinkage_of_sampling_noise_counts_directions_and_residuals():
    a, labels = anisotropic(k=3, n=10, d=5)
    assert Whitening.fit(a, labels, "sampling").shrinkage == pytest.approx(2 * (5 / (30 - 3)) ** 0.5)


def test_with_two_classes_automatic_shrinkage_is_the_oracle_approximation_of_the_residuals():
    a, labels = anisotropic(k=2, n=400, d=24)
    x = a.double()
    residuals = torch.cat([x[labels == c] - x[labels == c].mean(0) for c in range(2)]).numpy()
    share = OAS(assume_centered=True).fit(residuals).shrinkage_
    assert Whitening.fit(a, labels).shrinkage == pytest.approx(share / (1 - share), rel=0.01)


def test_a_class_of_one_image_adds_a_class_but_no_scatter():
    a, labels = anisotropic(k=3, n=20, d=5)
    alone = torch.cat([a, a[:1] * 3]), torch.cat([labels, torch.tensor([3])])
    torch.testing.assert_close(
        Whitening.fit(*alone, shrinkage=0.5).matrix, Whitening.fit(a, labels, shrinkage=0.5).matrix
    )
    with pytest.raises(InputError, match="Each of the 3 classes has one image, so nothing is known of the scatter"):
        Whitening.fit(a[:3], labels[:3])


def test_few_images_are_no_obstacle_with_shrinkage_but_are_without():
    a, labels = anisotropic(k=4, n=3, d=24)
    assert bool(Whitening.fit(a, labels)(a).isfinite().all())
    with pytest.raises(InputError, match="covariance of 24 features is singular; give more images, or a shrinkage > 0"):
        Whitening.fit(a, labels, shrinkage=0)
    sphere = Whitening.fit(a, labels, shrinkage=1e6)
    torch.testing.assert_close(sphere.matrix, torch.eye(24), atol=1e-4, rtol=0)


def test_a_spherical_scatter_shrinks_to_a_number_that_can_be_saved():
    x = torch.cat([torch.eye(3), -torch.eye(3)]).repeat(2, 1) + 2
    labels = torch.arange(12) // 6
    assert Whitening.fit(x, labels).shrinkage == 1e6
    assert Whitening.fit(x[:6], labels[:6]).shrinkage == 1e6


def test_the_inverse_root_is_symmetric_and_whitens():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 6, generator=generator, dtype=torch.float64)
    covariance = x.T @ x
    root = inverse_root(covariance, 0.0)
    torch.testing.assert_close(root, root.T)
    identity = root @ covariance @ root
    torch.testing.assert_close(identity / identity[0, 0], torch.eye(6, dtype=torch.float64))


def test_no_entry_is_too_small_for_a_normal_number():
    draw = torch.Generator().manual_seed(0)
    a = torch.rand(40, 64, generator=draw) * torch.logspace(0, -40, 64)
    matrix = Whitening.fit(a, torch.arange(40) % 8, shrinkage=1.0).matrix
    assert not ((matrix != 0) & (matrix.abs() < torch.finfo(torch.float32).tiny)).any()
    torch.testing.assert_close(matrix, matrix.T)


def test_what_cannot_be_whitened_is_refused():
    a, labels = anisotropic(k=3, n=10, d=5)
    for rows, classes, options, sentence in (
        (torch.where(a == a.max(), float("nan"), a), labels, {}, "infinite or not a number"),
        (a, labels[:29], {}, "30 rows of activations but 29 labels"),
        (a, torch.where(labels == 1, 2, labels), {}, "from 0 to 2 without gaps, but class 1 has no image"),
        (a, labels - 1, {}, "Labels run from -1 to 1, but must number 2 classes"),
        (a[:0], labels[:0], {}, "no activations"),
        (a, labels, {"shrinkage": -1}, "shrinkage is -1, but must lie in"),
        (a, labels, {"shots": 0}, "class of 0 shots"),
        (a, labels, {"shrinkage": "automatic"}, "shrinkage is 'automatic', but must .* be 'sampling' or 'auto'"),
        (torch.ones(30, 5), labels, {}, "do not vary within any class"),
    ):
        with pytest.raises(InputError, match=sentence):
            Whitening.fit(rows, classes, **options)
    with pytest.raises(InputError, match="infinite or not a number"):
        Whitening.fit(a, labels)(a / 0)


def test_a_state_from_before_names_a_power_which_is_one():
    a, labels = anisotropic(k=3, n=10, d=5)
    g = Whitening.fit(a, labels)
    assert torch.equal(Whitening.from_state(g.config() | {"power": 1.0}, g.state())(a), g(a))
    with pytest.raises(StorageError, match="takes a power of its own, 0.5; fit the model again"):
        Whitening.from_state(g.config() | {"power": 0.5}, g.state())

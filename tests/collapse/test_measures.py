from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.collapse import nc_measures, orthogonal_frame, simplex_etf
from masil.errors import InputError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def clouds(k=5, d=8, n=60, spread=0.5, seed=0):
    generator = seeded(seed)
    labels = torch.cat([torch.arange(k), torch.randint(0, k, (n - k,), generator=generator)])
    centres = torch.randn(k, d, generator=generator)
    h = centres[labels] + spread * torch.randn(n, d, generator=generator)
    return h, labels, torch.randn(k, d, generator=generator)


def naive(h, labels, W):
    """Every definition as it is written in the paper that introduced it, with d × d covariances and loops."""
    h, y, W = h.double().numpy(), labels.numpy(), W.double().numpy()
    n, k = len(y), len(W)
    means = np.stack([h[y == c].mean(0) for c in range(k)])
    M = means - means.mean(0)
    within = sum(np.outer(h[i] - means[y[i]], h[i] - means[y[i]]) for i in range(n)) / n
    between = sum(np.outer(m, m) for m in M) / k
    pairs = [(a, b) for a in range(k) for b in range(k) if a != b]

    def cosines(V):
        return np.array([V[a] @ V[b] / np.linalg.norm(V[a]) / np.linalg.norm(V[b]) for a, b in pairs])

    norms = [np.linalg.norm(V, axis=1) for V in (M, W)]
    agree = [np.argmin([np.linalg.norm(x - m) for m in means]) == np.argmax([x @ w for w in W]) for x in h]
    return {
        "nc1": np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / k,
        "nc1_ratio": np.trace(within) / np.trace(between),
        "equinorm_means": norms[0].std() / norms[0].mean(),
        "equinorm_vectors": norms[1].std() / norms[1].mean(),
        "equiangular_means": cosines(M).std(),
        "equiangular_vectors": cosines(W).std(),
        "simplex_means": np.abs(cosines(M) + 1 / (k - 1)).mean(),
        "simplex_vectors": np.abs(cosines(W) + 1 / (k - 1)).mean(),
        "nc3": np.linalg.norm(W / np.linalg.norm(W) - M / np.linalg.norm(M)),
        "nc4": np.mean(agree),
    }


@settings(deadline=None)
@given(k=st.integers(2, 6), d=st.integers(2, 9), spread=st.floats(0.01, 3), seed=st.integers(0, 999))
def test_measures_agree_with_their_definitions(k, d, spread, seed):
    h, labels, W = clouds(k, d, 40, spread, seed)
    measured, expected = asdict(nc_measures(h, labels, W)), naive(h, labels, W)
    for name, value in expected.items():
        assert measured[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


def test_classes_that_lie_close_together_far_from_the_origin_are_measured_too():
    h, labels, W = clouds(k=2, d=2, n=40, seed=512)
    for place in (0, 1e3):
        assert nc_measures(h.double() + place, labels, W).nc1 == pytest.approx(naive(h, labels, W)["nc1"], rel=1e-6)


def test_a_collapsed_simplex_measures_zero_and_full_agreement():
    frame = simplex_etf(7, 16, seeded())
    labels = torch.arange(70) % 7
    measures = asdict(nc_measures(3 * frame[labels], labels, frame))
    assert measures.pop("nc4") == 1
    for name, value in measures.items():
        assert value == pytest.approx(0, abs=1e-6), name


def test_an_orthogonal_frame_is_equiangular_but_no_simplex_until_it_is_centred():
    frame = orthogonal_frame(6, 10, seeded())
    labels = torch.arange(60) % 6
    measures = nc_measures(frame[labels], labels, frame)
    assert measures.equiangular_vectors == pytest.approx(0, abs=1e-6)
    assert measures.simplex_vectors == pytest.approx(1 / 5, abs=1e-6)
    assert measures.simplex_means == pytest.approx(0, abs=1e-6)


def test_nc1_grows_with_the_spread_and_ignores_scale_place_and_the_order_of_images():
    values = [nc_measures(*clouds(spread=spread)).nc1 for spread in (0.1, 0.3, 1.0)]
    assert values == sorted(values)
    h, labels, W = clouds()
    assert nc_measures(5 * h + 2, labels, W).nc1 == pytest.approx(nc_measures(h, labels, W).nc1, rel=1e-5)
    h, labels, W = clouds(n=9000)  # several blocks
    order = torch.randperm(9000, generator=seeded(1))
    first, second = asdict(nc_measures(h, labels, W)), asdict(nc_measures(h[order], labels[order], W))
    assert first == pytest.approx(second)


def test_gradients_are_not_followed_and_inputs_stay():
    h, labels, W = clouds()
    W.requires_grad_()
    before = h.clone()
    nc_measures(h.half().requires_grad_(), labels, W)
    assert torch.equal(h, before)
    assert W.grad is None


def test_what_cannot_be_measured_is_refused():
    h, labels, W = clouds()
    for wrong, sentence in (
        ((h, labels, W[:, :7]), r"activations are \[60, 8\] and the class vectors \[5, 7\]"),
        ((h, labels[:59], W), "60 rows of activations but 59 labels"),
        ((h, labels, W[:4]), "Labels run from 0 to 4, but must number 4 classes from 0 to 3"),
        ((h, torch.where(labels == 2, 3, labels), W), "from 0 to 4 without gaps, but class 2 has no image"),
        ((h, torch.zeros_like(labels), W[:1]), "there is only 1"),
        ((h / 0, labels, W), "infinite or not a number"),
        ((torch.zeros_like(h), labels, W), "has the network died"),
        ((h, labels, torch.zeros_like(W)), "class vector is zero"),
        ((h[:0], labels[:0], W), "no activations"),
    ):
        with pytest.raises(InputError, match=sentence):
            nc_measures(*wrong)

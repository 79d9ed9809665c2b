"""Eq. obj: the frame that regularised least squares prefers, from a random start."""

import math

import pytest
import torch

from masil.collapse import least_squares_objective, minimise_free_features
from masil.errors import InputError

COUNTS, D = [40, 20, 8, 3], 6
DECAY = 1e-3


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("counts", [COUNTS, [12] * 4])
def test_an_orthogonal_frame_comes_out_for_classes_of_equal_and_of_unequal_size(counts: list[int], layers: int) -> None:
    found = minimise_free_features(counts, D, decay_vectors=DECAY, decay_features=DECAY, layers=layers, seed=1)
    assert found.largest_cosine() < 1e-3  # a simplex of four classes would have 1/3
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    for label, vector in enumerate(found.vectors):
        own = found.features[labels == label]
        assert float((own - own.mean(0)).norm()) < 1e-3 * float(own.norm())  # NC1
        assert float(torch.cosine_similarity(own.mean(0), vector, dim=0)) == pytest.approx(1, abs=1e-5)  # NC3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_layer_is_the_known_minimum(seed: int) -> None:
    """Dang et al. 2023: W Wᵀ = diag(√(n_k λ_H/λ_W) − N λ_H), w_k = √(n_k λ_H/λ_W) h_k."""
    by_w, by_h, total = 2e-3, 1e-3, sum(COUNTS)
    found = minimise_free_features(COUNTS, D, decay_vectors=by_w, decay_features=by_h, seed=seed)
    ratios = torch.tensor(COUNTS).double().mul(by_h / by_w).sqrt()
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.diag(ratios - total * by_h), atol=1e-5, rtol=1e-4)
    first = torch.tensor([0, *COUNTS[:-1]]).cumsum(0)
    torch.testing.assert_close(found.vectors, ratios[:, None] * found.features[first], atol=1e-4, rtol=1e-4)


def test_the_objective_is_the_formula() -> None:
    W, V, H = torch.randn(2, 3), torch.randn(3, 4), torch.randn(5, 4)
    Y = torch.eye(2)[[0, 1, 1, 0, 1]]
    by_hand = sum(float((W @ V @ h - y).square().sum()) for h, y in zip(H, Y, strict=True)) / 10
    by_hand += 0.3 / 2 * float(W.square().sum() + V.square().sum()) + 0.2 / 2 * float(H.square().sum())
    assert math.isclose(float(least_squares_objective([W, V], H, Y, 0.3, 0.2)), by_hand, rel_tol=1e-5)


def test_too_few_features_are_refused() -> None:
    with pytest.raises(InputError, match="4 classes, 3 features and 1 layers"):
        minimise_free_features(COUNTS, 3)

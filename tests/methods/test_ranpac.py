import numpy as np
import pytest
import torch

from masil.errors import InputError
from masil.methods import PlainRanPAC, RanPAC, Samples
from masil.methods.ranpac import RIDGES, SAFE_RIDGE, best_ridge, moments, place_in_class, widened


def rows(labels: torch.Tensor, seed: int) -> torch.Tensor:
    centres = torch.rand(6, 7, generator=torch.Generator().manual_seed(0))
    return centres[labels] + 0.3 * torch.rand(len(labels), 7, generator=torch.Generator().manual_seed(seed))


BASE, NOVEL = torch.arange(4).repeat(20)[:-3], torch.arange(4, 6).repeat(5)


def test_weights_are_those_of_ridge_regression_in_which_classes_weigh_alike(task) -> None:
    method = PlainRanPAC(features=12)
    method.fit(Samples(rows(BASE, 1), labels=BASE), task(seed=3))
    method.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    a, y = torch.cat([rows(BASE, 1), rows(NOVEL, 2)]).double().numpy(), torch.cat([BASE, NOVEL]).numpy()
    h = np.maximum(a / np.linalg.norm(a, axis=1, keepdims=True) @ method.random.double().numpy(), 0)
    weight = 1 / np.bincount(y)[y]
    G, C = (h * weight[:, None]).T @ h, (h * weight[:, None]).T @ np.eye(6)[y]
    expected = np.linalg.solve(G + method.ridge * np.diag(G).mean() * np.eye(12), C)
    np.testing.assert_allclose(method.weights, expected, rtol=1e-3, atol=1e-4)


def test_the_ridge_is_the_one_that_does_best_on_held_out_rows() -> None:
    R = torch.randn(7, 12, generator=torch.Generator().manual_seed(0))
    G, means = moments(rows(BASE, 1), BASE, R)
    held = widened(rows(BASE, 5), R)
    chosen = []
    for labels in (BASE, BASE.roll(1)):  # with wrong labels the less is said the better
        errors = {}
        for ridge in RIDGES:
            W = np.linalg.solve(G.numpy() + ridge * np.diag(G.numpy()).mean() * np.eye(12), means.double().numpy().T)
            errors[ridge] = ((held.double().numpy() @ W - torch.eye(4)[labels].double().numpy()) ** 2).mean()
        chosen.append(best_ridge(G, means, held, labels))
        assert errors[chosen[-1]] == pytest.approx(min(errors.values()), rel=1e-5)
    assert chosen[0] < chosen[1]


def test_classes_too_small_to_judge_take_a_safe_ridge(task) -> None:
    method = PlainRanPAC(features=12)
    method.fit(Samples(rows(NOVEL[:8], 1), labels=NOVEL[:8] - 4), task(2))
    assert method.ridge == SAFE_RIDGE


def test_places_count_within_a_class() -> None:
    assert place_in_class(torch.tensor([2, 0, 2, 1, 0, 2])).tolist() == [0, 0, 1, 0, 1, 2]


def test_a_layer_without_features_is_refused() -> None:
    with pytest.raises(InputError, match="The random layer has 0 features, but needs at least 1"):
        RanPAC(features=0)

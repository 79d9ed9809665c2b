import numpy as np
import pytest
import torch

from masil.methods import Regularizer, Samples
from masil.methods.regularizer import basis, nearest_to_mean, projected, pulled_back

BASE, NOVEL = torch.arange(4).repeat(12), torch.arange(4, 6).repeat(3)


def rows(labels: torch.Tensor, seed: int) -> torch.Tensor:
    centres = torch.rand(6, 9, generator=torch.Generator().manual_seed(0))
    return centres[labels] + 0.3 * torch.rand(len(labels), 9, generator=torch.Generator().manual_seed(seed))


def test_projection_onto_the_span_is_the_least_squares_fit() -> None:
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(4, 9, generator=generator)
    W = torch.cat([W, W[:1] + W[1:2]])  # a dependent row adds nothing
    w = torch.randn(2, 9, generator=generator)
    coefficients = np.linalg.lstsq(W.double().numpy().T, w.double().numpy().T, rcond=1e-6)[0]
    span = basis(W)
    assert span.shape == (9, 4)
    np.testing.assert_allclose(projected(w, span), (W.numpy().T @ coefficients).T, atol=1e-5)


def test_base_classes_span_one_direction_less_than_they_are(task) -> None:
    # Their weights sum to zero but for rounding, which has a direction of its own on every processor.
    method = Regularizer()
    method.fit(Samples(rows(BASE, 1), labels=BASE), task())
    sizes = torch.linalg.svdvals(method.weights)
    assert sizes[3] < 1e-3 * sizes[2]
    assert method.span.shape == (9, 3)


def taught(task, **weights: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    method = Regularizer(**weights)
    method.fit(Samples(rows(BASE, 1), labels=BASE), task())
    before = method.weights.clone()
    method.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    return before, method.weights, method.span


def test_base_weights_do_not_move_at_all_until_something_pulls_harder_than_they_are_held(task) -> None:
    before, after, _ = taught(task, old=1e3)
    assert torch.equal(before, after[:4])
    before, after, _ = taught(task, old=0.0, lr=0.02)
    assert not torch.allclose(before, after[:4], atol=1e-3)


def test_new_weights_are_drawn_into_the_span_of_the_base_weights(task) -> None:
    outside = []
    for novel in (0.0, 1.0, 10.0):
        _, after, span = taught(task, novel=novel, lr=0.02)
        outside.append(float((after[4:] - projected(after[4:], span)).norm()))
    assert outside[0] > 2 * outside[1] > outside[2]
    assert torch.allclose(projected(projected(after, span), span), projected(after, span), atol=1e-5)


def test_the_norm_shortens_a_block_by_a_step_and_stops_at_nothing() -> None:
    block = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    shorter = pulled_back(block, 0.5)
    assert float(shorter.norm()) == pytest.approx(float(block.norm()) - 0.5, rel=1e-5)
    torch.testing.assert_close(shorter / shorter.norm(), block / block.norm())
    assert not pulled_back(block, 100.0).any()
    assert not pulled_back(torch.zeros(2, 2), 0.1).any()


def test_the_image_that_is_kept_is_the_one_nearest_to_the_mean() -> None:
    x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [1.0, 0.0], [9.0, 9.0]])
    assert nearest_to_mean(x, torch.tensor([0, 0, 0, 1])).tolist() == [[1.0, 0.0], [9.0, 9.0]]

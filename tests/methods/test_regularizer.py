import numpy as np
import pytest
import torch

from masil.methods import Regularizer, Samples
from masil.methods.regularizer import basis, projected

BASE, NOVEL = torch.arange(4).repeat(12), torch.arange(4, 6).repeat(3)


@pytest.fixture
def told(task):
    return task()


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


def test_base_classes_span_one_direction_less_than_they_are(told) -> None:
    # Their weights sum to zero but for rounding, which has a direction of its own on every processor.
    method = Regularizer()
    method.fit(Samples(rows(BASE, 1), labels=BASE), told)
    sizes = torch.linalg.svdvals(method.weights)
    assert sizes[3] < 1e-3 * sizes[2]
    assert method.span.shape == (9, 3)


def taught(told, old: float, novel: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    method = Regularizer(old=old, novel=novel)
    method.fit(Samples(rows(BASE, 1), labels=BASE), told)
    before = method.weights.clone()
    method.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    return before, method.weights, method.span


def test_a_strong_pull_keeps_old_weights_and_puts_new_ones_into_the_span(told) -> None:
    before, after, span = taught(told, old=1e4, novel=1e4)
    assert torch.allclose(before, after[:4], atol=1e-3)
    assert torch.allclose(after[4:], projected(after[4:], span), atol=1e-3)
    before, after, span = taught(told, old=0.0, novel=0.0)
    assert not torch.allclose(before, after[:4], atol=1e-2)
    assert not torch.allclose(after[4:], projected(after[4:], span), atol=1e-2)


def test_a_session_ends_where_the_gradient_vanishes(told) -> None:
    method = Regularizer()
    method.fit(Samples(rows(BASE, 1), labels=BASE), told)
    before, memory, span = method.weights, method.memory, method.span
    method.learn(Samples(rows(NOVEL, 2), labels=NOVEL))
    W = method.weights.double().numpy()
    x = torch.cat([memory, method._prepared(rows(NOVEL, 2))]).double().numpy()
    y = np.concatenate([np.arange(4), NOVEL.numpy()])
    scores = np.exp(x @ W.T)
    shares = scores / scores.sum(1, keepdims=True) - np.eye(6)[y]
    gradient = shares.T @ x / len(y) + 5e-4 * W
    gradient[:4] += 2 * 0.2 * (W[:4] - before.double().numpy())
    outside = W[4:] - W[4:] @ span.double().numpy() @ span.double().numpy().T
    gradient[4:] += 2 * 1.0 * outside
    assert np.abs(gradient).max() < 2e-3


def test_every_class_is_tied_to_where_its_own_session_left_it(told) -> None:
    method = Regularizer(old=1e4, earlier=1e4)
    method.fit(Samples(rows(BASE, 1), labels=BASE), told)
    learnt = [method.weights]
    for first in (4, 5):
        labels = torch.full((3,), first)
        method.learn(Samples(rows(labels, first), labels=labels))
        learnt.append(method.weights)
    base, one, two = learnt
    assert torch.allclose(two[:4], base, atol=1e-3)
    assert torch.allclose(two[:5], one, atol=1e-3)
    free = Regularizer(old=1e4, earlier=0.0)
    free.fit(Samples(rows(BASE, 1), labels=BASE), told)
    for first in (4, 5):
        labels = torch.full((3,), first)
        free.learn(Samples(rows(labels, first), labels=labels))
    assert torch.allclose(free.weights[:4], base, atol=1e-3)
    assert not torch.allclose(free.weights[4], one[4], atol=1e-2)

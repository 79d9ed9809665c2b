import math

import pytest
import torch
from torch.nn import functional

from masil.collapse import cosine_cross_entropy, dot_regression
from masil.errors import InputError
from masil.training import Objective
from masil.training.head import Head, contrast, soft_labels


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(n: int = 6, d: int = 8, k: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    activations = torch.rand(n, d, generator=draw(1))
    labels = torch.arange(n) % k
    return activations, labels, labels.roll(1), torch.rand(n, generator=draw(2))


def test_only_terms_with_a_weight_have_parameters() -> None:
    cosine = Head(8, 3, Objective(), draw())
    dot = Head(8, 3, Objective(cosine=0.0, dot=1.0, embedding=5), draw())
    assert {name for name, _ in cosine.named_parameters()} == {"vectors"}
    assert all(name.startswith("projection.") for name, _ in dot.named_parameters())
    assert cosine.class_vectors(3).shape == (3, 8)
    assert dot.class_vectors(3).shape == (3, 5)


def test_the_loss_is_the_weighted_sum() -> None:
    wants = Objective(cosine=0.5, dot=2.0, contrast=0.25, embedding=5, smoothing=0.1)
    head = Head(8, 3, wants, draw())
    a, labels, partners, lam = batch()
    z = head.embed(a)
    assert head.vectors is not None
    assert head.frame is not None
    expected = (
        0.5 * cosine_cross_entropy(a, head.vectors, labels, 16.0, smoothing=0.1, partner_labels=partners, lam=lam)
        + 2.0 * dot_regression(z, head.frame[labels], 10.0, partner_vectors=head.frame[partners], lam=lam)
        + 0.25 * contrast(z, soft_labels(labels, partners, lam, 3), 0.1)
    )
    torch.testing.assert_close(head(a, labels, partners, lam), expected)


def test_a_frame_larger_than_the_embedding_is_refused() -> None:
    with pytest.raises(InputError, match="simplex of 60 classes needs at least 59 features but there are 32"):
        Head(8, 60, Objective(cosine=0.0, dot=1.0, embedding=32), draw())
    with pytest.raises(InputError, match="simplex of 100 classes"):
        Head(8, 60, Objective(cosine=0.0, dot=1.0, embedding=64, reserve=100), draw())


def test_a_reserved_frame_has_room_for_classes_to_come() -> None:
    head = Head(8, 3, Objective(cosine=0.0, dot=1.0, embedding=16, reserve=10), draw())
    assert head.class_vectors(10).shape == (10, 16)
    gram = head.class_vectors(10) @ head.class_vectors(10).T
    torch.testing.assert_close(gram, (10 * torch.eye(10) - 1) / 9, atol=1e-5, rtol=0)


def test_contrast_is_its_formula() -> None:
    z = functional.normalize(torch.randn(5, 4, generator=draw(3)))
    labels = torch.tensor([0, 0, 1, 1, 2])  # the last one has no positive
    total = 0.0
    for i in range(4):
        others = [j for j in range(5) if j != i]
        logs = {j: float(z[i] @ z[j]) / 0.5 for j in others}
        norm = math.log(sum(math.exp(value) for value in logs.values()))
        positives = [j for j in others if labels[j] == labels[i]]
        total -= sum(logs[j] - norm for j in positives) / len(positives)
    found = contrast(z, functional.one_hot(labels).float(), 0.5)
    assert float(found) == pytest.approx(total / 4, rel=1e-5)


def test_contrast_gives_finite_gradients_without_any_positive() -> None:
    z = torch.randn(3, 4, generator=draw(3)).requires_grad_()
    loss = contrast(z, torch.eye(3), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()
    with pytest.raises(InputError, match="only one"):
        contrast(z[:1], torch.eye(3)[:1], 0.1)


def test_soft_labels_are_shares() -> None:
    found = soft_labels(torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.75, 0.5]), 3)
    assert found.tolist() == [[0.75, 0.0, 0.25], [0.0, 1.0, 0.0]]


def test_class_vectors_may_begin_at_means_also_those_of_virtual_classes() -> None:
    head = Head(8, 6, Objective(), draw())
    means = torch.rand(3, 8, generator=draw(4))
    head.start_at(means)
    torch.testing.assert_close(head.class_vectors(3), functional.normalize(means))
    assert torch.equal(head.class_vectors(6)[3:], head.class_vectors(3))

import math

import pytest
import torch
from masil.training.head import Head, contrast, keep_free, sigmoids, soft_labels
from torch.nn import functional

from masil.collapse import cosine_cross_entropy, dot_regression, reserve, reserve_mixed, virtual_prototypes
from masil.errors import InputError
from masil.training import Objective


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


def test_class_vectors_may_begin_at_means() -> None:
    head = Head(8, 3, Objective(), draw())
    means = torch.rand(3, 8, generator=draw(4))
    head.start_at(means)
    torch.testing.assert_close(head.class_vectors(3), functional.normalize(means))


def test_a_margin_and_sigmoids_are_terms_of_the_loss() -> None:
    a, labels, partners, lam = batch()
    head = Head(8, 3, Objective(margin=0.4, cosine_scale=30.0), draw())
    assert head.vectors is not None
    expected = cosine_cross_entropy(a, head.vectors, labels, 30.0, 0.4, partner_labels=partners, lam=lam)
    torch.testing.assert_close(head(a, labels, partners, lam), expected)
    head = Head(8, 3, Objective(cosine=0.0, binary=2.0), draw())
    assert head.vectors is not None
    expected = 2 * sigmoids(a, head.vectors, soft_labels(labels, partners, lam, 3), 16.0)
    torch.testing.assert_close(head(a, labels, partners, lam), expected)


def test_sigmoids_judge_every_class_alone() -> None:
    vectors, a = torch.eye(2), torch.tensor([[1.0, 0.0]])
    right, wrong = (float(sigmoids(a, vectors, torch.tensor([row]), 4.0)) for row in ([1.0, 0.0], [0.0, 1.0]))
    assert right == pytest.approx(2 * math.log(1 + math.exp(-2)))
    assert wrong == pytest.approx(2 * math.log(1 + math.exp(2)))


def test_prototypes_add_what_keeps_room_for_classes_to_come() -> None:
    a, labels, _, _ = batch()
    one = torch.ones(len(labels))
    plain, roomy = (Head(8, 3, Objective(prototypes=r, prototype_weight=0.5), draw()) for r in (0, 5))
    assert roomy.vectors is not None
    rows = 16.0 * torch.cat([functional.normalize(roomy.vectors), virtual_prototypes(5, 8)])
    added = roomy(a, labels, labels, one) - plain(a, labels, labels, one)
    torch.testing.assert_close(added, 0.5 * keep_free(a, labels, rows, 3))
    assert {name for name, _ in roomy.named_parameters()} == {"vectors"}
    assert "prototypes" not in roomy.state_dict()


def test_what_is_mixed_to_keep_room_has_shares_of_a_beta_distribution() -> None:
    n = 1000
    labels = torch.arange(n) % 2
    a = functional.one_hot(labels, 2).double()
    rows = torch.randn(4, 2, generator=draw(5)).double()
    share = torch.tensor([_beta((i + 0.5) / n) for i in range(n)]).double()[:, None]
    mixed = functional.normalize(share * a + (1 - share) * a.roll(1, 0))
    expected = reserve(a @ rows.T, labels, 2) + reserve_mixed(mixed @ rows.T, 2)
    torch.testing.assert_close(keep_free(a, labels, rows, 2), expected, rtol=1e-4, atol=1e-5)
    same = torch.zeros(n, dtype=torch.int64)
    torch.testing.assert_close(keep_free(a, same, rows, 2), reserve(a @ rows.T, same, 2))


def _beta(u: float) -> float:
    """Invert the distribution function of Beta(2, 2) by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if 3 * middle**2 - 2 * middle**3 < u else (low, middle)
    return low


def test_terms_without_a_class_are_refused() -> None:
    with pytest.raises(InputError, match="`cosine`, `dot` or `binary` above 0"):
        Objective(cosine=0.0)
    with pytest.raises(InputError, match="Virtual prototypes belong to the cosine term"):
        Objective(cosine=0.0, dot=1.0, prototypes=3)

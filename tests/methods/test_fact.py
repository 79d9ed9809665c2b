import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Fact, Queries, Samples
from masil.methods.fact import FactLoss, cross_entropy_without, keep_free, reserve, reserve_mixed, virtual_prototypes
from masil.training import CosineLoss

LOGITS = torch.tensor([[3.0, 1.0, 0.5, -1.0]])  # two classes, then two prototypes


def softmax(*values: float) -> float:
    """The probability of the first."""
    return math.exp(values[0]) / sum(math.exp(value) for value in values)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # A hidden class is out of the race.
        (cross_entropy_without(LOGITS, torch.tensor([0]), torch.tensor([1])), -math.log(softmax(1, 0.5, -1))),
        # Without its class an image is drawn to its best prototype.
        (reserve(LOGITS, torch.tensor([0]), 2), -math.log(softmax(0.5, 1, -1))),
        # A mixed image is drawn to a prototype, and without it to a class.
        (reserve_mixed(LOGITS, 2), -math.log(softmax(0.5, 3, 1, -1)) - math.log(softmax(3, 1, -1))),
    ],
)
def test_the_terms_of_the_loss(loss: Tensor, expected: float) -> None:
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_prototypes_are_unit_vectors_and_the_same_every_time() -> None:
    one, other = virtual_prototypes(7, 16), virtual_prototypes(7, 16)
    assert torch.equal(one, other)
    torch.testing.assert_close(one, functional.normalize(one))
    assert virtual_prototypes(0, 16).shape == (0, 16)


def test_the_loss_adds_what_keeps_room_for_classes_to_come() -> None:
    a, labels = torch.rand(6, 8, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
    plain, roomy = (
        loss.build(8, 3, torch.Generator().manual_seed(0))
        for loss in (CosineLoss(), FactLoss(prototypes=5, weight=0.5))
    )
    assert roomy.vectors is not None
    rows = 16.0 * torch.cat([functional.normalize(roomy.vectors), virtual_prototypes(5, 8)])
    one = torch.ones(6)
    torch.testing.assert_close(
        roomy(a, labels, labels, one) - plain(a, labels, labels, one), 0.5 * keep_free(a, labels, rows, 3)
    )
    assert set(roomy.state_dict()) == {"vectors"}


def test_what_is_mixed_to_keep_room_has_shares_of_a_beta_distribution() -> None:
    n = 1000
    labels = torch.arange(n) % 2
    a = functional.one_hot(labels, 2).double()
    rows = torch.randn(4, 2, generator=torch.Generator().manual_seed(5)).double()
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


def taught(told, features: int, eta: float) -> tuple[Fact, Queries]:
    """Teach four base classes; give the method and images to ask about."""
    labels = torch.arange(4).repeat(8)
    drawn = torch.rand(32, features, generator=torch.Generator().manual_seed(0))
    method = Fact(eta=eta)
    method.fit(Samples(drawn + torch.eye(4, features)[labels], labels=labels), told)
    return method, Queries(torch.rand(40, features, generator=torch.Generator().manual_seed(1)))


def test_predictions_mix_cosines_with_those_by_way_of_virtual_prototypes(task) -> None:
    method, asked = taught(task(4, 3), 6, 0.6)
    assert method.free.shape == (3, 6)
    z, vectors = method.geometry(asked)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        direct = torch.softmax(16 * vectors @ row, 0)
        by_way = torch.softmax(vectors @ method.free.T @ (method.free @ row), 0)
        mixed = 0.4 * direct + 0.6 * by_way
        assert float(mixed[predicted]) == pytest.approx(float(mixed.max()), abs=1e-5)


def test_only_the_prototypes_nearest_to_an_image_have_a_say(task) -> None:
    method, asked = taught(task(4, 50), 64, 1.0)
    z, vectors = method.geometry(asked)
    torch.testing.assert_close(method.free @ method.free.T, torch.eye(50), atol=1e-5, rtol=0)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        near = sorted(((float(row @ free), free) for free in method.free), key=lambda pair: -pair[0])[:40]
        votes = sum(nearness * (vectors @ prototype) for nearness, prototype in near)
        assert float(votes[predicted]) == pytest.approx(float(votes.max()), abs=1e-5)

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import Tensor
from torch.nn import functional

from masil.backbones import Backbone
from masil.data import Framing
from masil.errors import InputError
from masil.methods import Fact, Queries, Samples
from masil.methods.fact import (
    FactLoss,
    cross_entropy_without,
    mix_with_previous,
    mixed_in_the_middle,
    reserve,
    reserve_mixed,
    virtual_prototypes,
)
from masil.training import CosineLoss

LOGITS = torch.tensor([[3.0, 1.0, 0.5, -1.0]])  # two classes, then two prototypes
A, LABELS, ONE = torch.rand(6, 8, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3, torch.ones(6)


def built(loss: CosineLoss, features: int = 8) -> CosineLoss:
    return loss.build(features, 3, torch.Generator().manual_seed(0))


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
    plain, roomy = built(CosineLoss()), built(FactLoss(prototypes=5, weight=0.5))
    assert roomy.vectors is not None
    rows = 16.0 * torch.cat([functional.normalize(roomy.vectors), virtual_prototypes(5, 8)])
    mixed = functional.normalize(mix_with_previous(A))  # neighbours are of different classes
    extra = reserve(functional.normalize(A) @ rows.T, LABELS, 3) + reserve_mixed(mixed @ rows.T, 3)
    torch.testing.assert_close(roomy(A, LABELS, LABELS, ONE) - plain(A, LABELS, LABELS, ONE), 0.5 * extra)
    assert set(roomy.state_dict()) == {"vectors", "learnt"}


def test_prototypes_of_mixed_images_learn_and_the_others_stay() -> None:
    loss = built(FactLoss(prototypes=5, weight=0.5))
    one_class = torch.ones(6, dtype=torch.int64)  # whose images are not mixed
    loss(A, one_class, one_class, ONE).backward()
    assert loss.learnt.grad is None
    optimiser = torch.optim.SGD(loss.parameters(), 0.1)
    loss(A, LABELS, LABELS, ONE).backward()
    optimiser.step()
    assert torch.equal(loss.free, virtual_prototypes(5, 8))
    assert not torch.allclose(loss.learnt, loss.free, atol=1e-4)


def test_what_is_mixed_to_keep_room_has_shares_of_a_beta_distribution() -> None:
    n = 1000
    a = functional.one_hot(torch.arange(n) % 2, 2).double()
    share = torch.from_numpy(beta(2, 2).ppf((np.arange(n) + 0.5) / n))[:, None]
    torch.testing.assert_close(mix_with_previous(a), share * a + (1 - share) * a.roll(1, 0), rtol=1e-4, atol=1e-5)


def test_images_are_mixed_between_the_halves_of_the_network(backbone) -> None:
    """Up to the third stage nothing is mixed; from there on the network sees mixed maps. No hook is left behind."""
    pixels = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    loss = built(FactLoss(prototypes=5, weight=0.5, middle=True), backbone.features)
    loss.prepare(backbone, pixels, torch.arange(4), 16)
    with torch.no_grad():
        x = torch.relu(backbone.bn1(backbone.conv1(pixels)))
        maps = backbone.layer3(mix_with_previous(backbone.layer2(backbone.layer1(x))))
        before = backbone(pixels)
        mixed = mixed_in_the_middle(backbone, pixels)
        torch.testing.assert_close(mixed, maps.mean((2, 3)))
        torch.testing.assert_close(backbone(pixels), before)
        labels, one = torch.arange(4) % 3, torch.ones(4)
        difference = loss(before, labels, labels, one, pixels) - loss(before, labels, labels, one)
        learnt = 16 * functional.normalize(torch.cat([loss.vectors, loss.learnt]))
        apart = labels != labels.roll(1)
        expected = [
            reserve_mixed(functional.normalize(rows[apart]) @ learnt.T, 3)
            for rows in (mixed, mix_with_previous(before))
        ]
        torch.testing.assert_close(difference, 0.5 * (expected[0] - expected[1]), atol=1e-4, rtol=1e-3)
    assert set(loss.state_dict()) == {"vectors", "learnt"}


def test_a_network_without_a_middle_is_refused() -> None:
    class Whole(Backbone):
        def maps(self, x: Tensor) -> Tensor:
            return x

    with pytest.raises(InputError, match="'whole' has neither stages nor blocks between which images could be mixed"):
        mixed_in_the_middle(Whole("whole", 3, Framing(4, 4), [0.5] * 3, [0.5] * 3), torch.rand(2, 3, 4, 4))


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
    torch.testing.assert_close(method.free.norm(dim=1), torch.ones(50), atol=1e-5, rtol=0)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        near = sorted(((float(row @ free), free) for free in method.free), key=lambda pair: -pair[0])[:40]
        votes = sum(nearness * (vectors @ prototype) for nearness, prototype in near)
        assert float(votes[predicted]) == pytest.approx(float(votes.max()), abs=1e-5)

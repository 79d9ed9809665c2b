import pytest
import torch
from torch.nn import functional

from masil.backbones import Backbone
from masil.methods import make
from masil.methods.idlvq import IdlvqLoss, margin_between, margin_losses, squared_distances

BASE, NEW = 5, 2


def test_distances_are_distances() -> None:
    rows, references = torch.randn(4, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(squared_distances(rows, references), torch.cdist(rows, references).square())


def test_the_margin_counts_the_nearest_other_reference() -> None:
    squares = torch.tensor([[1.0, 3.0, 2.0], [4.0, 1.5, 2.0]])
    assert margin_losses(squares, torch.tensor([0, 1]), 0.75).tolist() == [0.0, 0.25]
    assert margin_between(torch.tensor([[0.0], [1.0], [4.0]])) == pytest.approx(1.0)


def test_the_loss_of_a_base_session_is_margin_and_compactness() -> None:
    loss = IdlvqLoss(margin=0.5, intra=0.1).build(6, 4, torch.Generator().manual_seed(0))
    activations, labels = torch.rand(5, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 3, 2, 1, 0])
    total = 0.0
    for row, label in zip(functional.normalize(activations), labels.tolist(), strict=True):
        squares = [float((row - reference).square().sum()) for reference in loss.vectors.detach()]
        own = squares.pop(label)
        total += max(0.0, 0.5 + own - min(squares)) + 0.1 * own
    assert float(loss(activations, labels, labels, torch.ones(5)).detach()) == pytest.approx(total / 5, rel=1e-4)


def learnt(images, told, **parameters):
    method = make("idlvq", **parameters)
    method.fit(images(range(BASE), 8, 1), told)
    before = method.references.clone(), method.unit_features(method.exemplars)
    method.learn(images(range(BASE, BASE + NEW), 5, 2))
    return method, *before


def test_references_follow_their_exemplars(images, task, backbone: Backbone) -> None:
    method, references, features = learnt(images, task(BASE, NEW, backbone=backbone), forgetting=0.0, lr=0.05)
    drift = method.unit_features(method.exemplars[:BASE]) - features
    assert float(drift.norm()) > 0
    torch.testing.assert_close(method.references[:BASE], references + drift)
    assert len(method.references) == len(method.exemplars) == BASE + NEW
    assert not any(torch.equal(a, b) for a, b in zip(method.references[:BASE], references, strict=True))
    tests = images(range(BASE + NEW), 6, 3)
    f = method.unit_features(method.entering(tests))
    torch.testing.assert_close(-method.scores(tests), torch.cdist(f, method.references).square(), atol=1e-5, rtol=1e-4)


def test_without_training_nothing_drifts(images, task, backbone: Backbone) -> None:
    method, references, _ = learnt(images, task(BASE, NEW, backbone=backbone), steps=0)
    assert torch.equal(method.references[:BASE], references)


def test_a_shift_of_all_features_is_the_shift_of_every_old_reference(images, task, backbone: Backbone) -> None:
    method = make("idlvq", steps=0)
    method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
    references, features, asked = method.references.clone(), method.unit_features, []
    shift = torch.linspace(-1, 1, references.shape[1])

    def shifted(entering: torch.Tensor) -> torch.Tensor:
        asked.append(len(entering))  # shots and exemplars before the session, exemplars and shots after it
        return features(entering) + shift * (len(asked) > 2)

    method.unit_features = shifted
    method.learn(images(range(BASE, BASE + NEW), 5, 2))
    assert asked == [5 * NEW, BASE, BASE, 5 * NEW]
    torch.testing.assert_close(method.references[:BASE], references + shift)


def test_before_the_first_step_nothing_is_forgotten(images, task, backbone: Backbone, monkeypatch) -> None:
    losses = []
    monkeypatch.setattr(
        "masil.methods.idlvq.Idlvq.fine_tune_steadily",
        lambda self, learnt, loss, rows, **rest: losses.append(float(loss(torch.arange(rows)).detach())),
    )
    for forgetting in (0.0, 1.0):
        learnt(images, task(BASE, NEW, backbone=backbone), forgetting=forgetting)
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_the_forgetting_term_holds_the_exemplars(images, task, backbone: Backbone) -> None:
    drifts = []
    for forgetting in (0.0, 100.0):
        method, _, features = learnt(images, task(BASE, NEW, backbone=backbone), forgetting=forgetting, lr=1e-4)
        drifts.append(float((method.unit_features(method.exemplars[:BASE]) - features).norm()))
    assert drifts[1] < drifts[0]

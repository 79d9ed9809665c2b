"""Herding, and the losses of iCaRL, EEIL and LUCIR, written out a row at a time."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Lucir, Samples, make
from masil.methods.eeil import TEMPERATURE, balanced, distillation
from masil.methods.icarl import ICaRLLoss, sigmoid_loss
from masil.methods.lucir import margin_ranking
from masil.methods.replay import herd

GENERATOR = torch.Generator().manual_seed(0)
LOGITS, BEFORE = torch.randn(4, 5, generator=GENERATOR), torch.randn(4, 3, generator=GENERATOR)
LABELS = torch.tensor([0, 4, 3, 2])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_icarl_distils_old_classes_and_teaches_new_ones() -> None:
    total = 0.0
    for i in range(4):
        for j in range(5):
            target = sigmoid(float(BEFORE[i, j])) if j < 3 else float(LABELS[i] == j)
            said = sigmoid(float(LOGITS[i, j]))
            total -= (target * math.log(said) + (1 - target) * math.log(1 - said)) / 4
    targets = torch.cat([torch.sigmoid(BEFORE), torch.eye(5)[LABELS][:, 3:]], 1)
    assert math.isclose(float(sigmoid_loss(LOGITS, targets)), total, rel_tol=1e-5)


def test_icarl_judges_every_class_of_a_mixed_image_alone() -> None:
    loss = ICaRLLoss(scale=4.0).build(2, 2, torch.Generator().manual_seed(0))
    loss.start_at(torch.eye(2))
    first, second, half = torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5])
    right, wrong = -2 * math.log(sigmoid(2)), -2 * math.log(sigmoid(-2))
    image = torch.tensor([[1.0, 0.0]])
    for labels, partners, expected in (
        (first, first, right),
        (second, second, wrong),
        (first, second, (right + wrong) / 2),
    ):
        assert math.isclose(loss(image, labels, partners, half).item(), expected, rel_tol=1e-6)


def test_eeil_distils_every_session_by_itself() -> None:
    total = 0.0
    for group in (slice(0, 1), slice(1, 3)):
        for now, then in zip(LOGITS[:, group], BEFORE[:, group], strict=True):
            target = torch.softmax(then / TEMPERATURE, 0)
            total -= float((target * torch.log_softmax(now / TEMPERATURE, 0)).sum()) / 4
    assert math.isclose(float(distillation(LOGITS, BEFORE, [1, 2])), total, rel_tol=1e-5)


def test_eeil_balances_to_the_smallest_class() -> None:
    labels = torch.tensor([0, 0, 1, 0, 1, 2, 2, 2])
    assert balanced(labels).tolist() == [0, 1, 2, 4, 5, 6]


def test_lucir_ranks_old_classes_above_the_nearest_new_ones() -> None:
    z = functional.normalize(torch.randn(4, 6, generator=GENERATOR))
    vectors = torch.randn(7, 6, generator=GENERATOR)
    labels = torch.tensor([0, 4, 2, 6])  # classes 3 … 6 are new
    cosines = z @ functional.normalize(vectors).T
    total = 0.0
    for i in (0, 2):
        rivals = sorted((float(c) for c in cosines[i, 3:]), reverse=True)[:2]
        total += sum(max(0.0, 0.5 - float(cosines[i, labels[i]]) + rival) for rival in rivals) / 4
    assert math.isclose(float(margin_ranking(cosines, labels, 3, 0.5, 2)), total, rel_tol=1e-5)
    assert float(margin_ranking(cosines, torch.full((4,), 5), 3, 0.5, 2)) == 0


def test_lucir_compares_with_the_vectors_that_it_trained(task, monkeypatch: pytest.MonkeyPatch) -> None:
    centres = 1 + torch.rand(6, 8, generator=torch.Generator().manual_seed(0))  # all share a large common part
    labels = torch.arange(6).repeat(10)
    noise = 0.05 * torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
    base, new = labels < 4, labels >= 4
    trained: list[list[Tensor]] = []
    train = Lucir.train_session

    def noted(self: Lucir, learnt: list[Tensor], *rest: Any) -> None:
        trained.append([tensor.clone() for tensor in learnt])
        train(self, learnt, *rest)
        trained.append(learnt)

    monkeypatch.setattr(Lucir, "train_session", noted)
    method = Lucir(lr=0.03)
    rows = centres[labels] + noise
    method.fit(Samples(rows[base], labels=labels[base]), task(4, 2, adapted=True))
    method.learn(Samples(rows[new], labels=labels[new]))
    (_, start), (_, end) = trained
    torch.testing.assert_close(method.vectors[4:], functional.normalize(end))
    of_base = functional.normalize(rows[base]).mean(0)
    assert float((functional.normalize(start) @ functional.normalize(of_base, dim=0)).abs().max()) < 0.5


def herded(z: np.ndarray, most: int) -> list[int]:
    """Algorithm 4 of iCaRL, step by step."""
    chosen: list[int] = []
    for k in range(1, most + 1):
        distances = {
            i: np.linalg.norm(z.mean(0) - (z[i] + z[chosen].sum(0)) / k) for i in range(len(z)) if i not in chosen
        }
        chosen.append(min(distances, key=distances.__getitem__))
    return chosen


def test_herding_follows_the_algorithm() -> None:
    z = torch.randn(15, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert herd(z, 9).tolist() == herded(z.numpy(), 9)
    assert sorted(herd(z, 40).tolist()) == list(range(15))


def test_each_class_keeps_its_own_and_no_more_than_asked_for(task) -> None:
    labels = torch.tensor([1, 0, 1, 0, 1, 0, 1])
    activations = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
    method = make("lucir", exemplars=2, lr=0.1)
    method.fit(Samples(activations, labels=labels), task(2, adapted=True))
    assert method.memory.labels.tolist() == [0, 0, 1, 1]
    for row, label in zip(method.memory.activations, method.memory.labels, strict=True):
        assert any(torch.equal(row, image) for image in activations[labels == label])
    method.learn(Samples(torch.ones(1, 3), labels=torch.tensor([2])))
    assert method.memory.labels.tolist() == [0, 0, 1, 1, 2]
    assert torch.equal(method.memory.activations[4], torch.ones(3))

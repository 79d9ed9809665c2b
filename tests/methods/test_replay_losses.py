"""The losses of iCaRL, EEIL and LUCIR, written out a row at a time."""

import math

import torch

from masil.methods.eeil import TEMPERATURE, balanced, distillation
from masil.methods.icarl import sigmoid_loss
from masil.methods.lucir import margin_ranking

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
    assert math.isclose(float(sigmoid_loss(LOGITS, LABELS, torch.sigmoid(BEFORE))), total, rel_tol=1e-5)
    alone = torch.nn.BCEWithLogitsLoss(reduction="sum")(LOGITS, torch.eye(5)[LABELS]) / 4
    assert torch.isclose(sigmoid_loss(LOGITS, LABELS), alone)


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
    z = torch.nn.functional.normalize(torch.randn(4, 6, generator=GENERATOR))
    vectors = torch.randn(7, 6, generator=GENERATOR)
    labels = torch.tensor([0, 4, 2, 6])  # classes 3 … 6 are new
    cosines = z @ torch.nn.functional.normalize(vectors).T
    total = 0.0
    for i in (0, 2):
        rivals = sorted((float(c) for c in cosines[i, 3:]), reverse=True)[:2]
        total += sum(max(0.0, 0.5 - float(cosines[i, labels[i]]) + rival) for rival in rivals) / 2
    assert math.isclose(float(margin_ranking(z, vectors, labels, 3, 0.5, 2)), total, rel_tol=1e-5)
    assert float(margin_ranking(z, vectors, labels + 3, 3, 0.5, 2)) == 0

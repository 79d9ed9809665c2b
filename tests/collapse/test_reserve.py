import math

import torch
from torch.nn import functional

from masil.collapse import reserve, reserve_mixed, virtual_prototypes
from masil.collapse.reserve import hiding

LOGITS = torch.tensor([[3.0, 1.0, 0.5, -1.0]])  # two classes, then two prototypes


def softmax(*values: float) -> float:
    """The probability of the first."""
    return math.exp(values[0]) / sum(math.exp(value) for value in values)


def test_a_hidden_class_is_out_of_the_race() -> None:
    loss = float(hiding(LOGITS, torch.tensor([0]), torch.tensor([1])))
    assert math.isclose(loss, -math.log(softmax(1, 0.5, -1)), rel_tol=1e-6)


def test_without_its_class_an_image_is_drawn_to_its_best_prototype() -> None:
    loss = float(reserve(LOGITS, torch.tensor([0]), 2))
    assert math.isclose(loss, -math.log(softmax(0.5, 1, -1)), rel_tol=1e-6)


def test_a_mixed_image_is_drawn_to_a_prototype_and_without_it_to_a_class() -> None:
    loss = float(reserve_mixed(LOGITS, 2))
    expected = -math.log(softmax(0.5, 3, 1, -1)) - math.log(softmax(3, 1, -1))
    assert math.isclose(loss, expected, rel_tol=1e-6)


def test_prototypes_are_unit_vectors_and_the_same_every_time() -> None:
    one, other = virtual_prototypes(7, 16), virtual_prototypes(7, 16)
    assert torch.equal(one, other)
    torch.testing.assert_close(one, functional.normalize(one))
    assert virtual_prototypes(0, 16).shape == (0, 16)

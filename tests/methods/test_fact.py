import math

import torch

from masil.methods import Fact
from masil.methods.fact import masked_loss


def test_a_hidden_class_is_out_of_the_race() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.0]])
    loss = float(masked_loss(logits, torch.tensor([0]), torch.tensor([1])))
    assert math.isclose(loss, -math.log(math.e / (math.e + 1)), rel_tol=1e-6)


def test_predictions_mix_cosines_with_those_by_way_of_virtual_prototypes() -> None:
    labels = torch.arange(4).repeat(8)
    activations = torch.rand(32, 6, generator=torch.Generator().manual_seed(0)) + torch.eye(4, 6)[labels]
    asked = torch.rand(40, 6, generator=torch.Generator().manual_seed(1))
    method = Fact(total=7, eta=0.6)
    method.fit(activations, labels)
    z, vectors = method.geometry(asked)
    virtual = method.virtual_
    assert virtual is not None
    assert virtual.shape == (3, 6)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        direct, by_way = torch.softmax(16 * vectors @ row, 0), torch.softmax(vectors @ virtual.T @ (virtual @ row), 0)
        assert int(predicted) == int((0.4 * direct + 0.6 * by_way).argmax())


def test_no_class_to_come_needs_no_prototype() -> None:
    labels = torch.arange(3).repeat(6)
    method = Fact(total=3)
    method.fit(torch.eye(3)[labels] + 0.1, labels)
    assert method.predict(torch.eye(3)).tolist() == [0, 1, 2]

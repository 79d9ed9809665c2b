import pytest
import torch
from torch import Tensor

from masil.methods import Fact


def taught(features: int, total: int, eta: float) -> tuple[Fact, Tensor, Tensor]:
    """Teach four base classes; give the method, images to ask about, and the prototypes of the classes to come."""
    labels = torch.arange(4).repeat(8)
    drawn = torch.rand(32, features, generator=torch.Generator().manual_seed(0))
    method = Fact(total=total, eta=eta)
    method.fit(drawn + torch.eye(4, features)[labels], labels)
    assert method.virtual_ is not None
    assert method.virtual_.shape == (total - 4, features)
    return method, torch.rand(40, features, generator=torch.Generator().manual_seed(1)), method.virtual_


def test_predictions_mix_cosines_with_those_by_way_of_virtual_prototypes() -> None:
    method, asked, virtual = taught(6, 7, 0.6)
    z, vectors = method.geometry(asked)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        direct, by_way = torch.softmax(16 * vectors @ row, 0), torch.softmax(vectors @ virtual.T @ (virtual @ row), 0)
        mixed = 0.4 * direct + 0.6 * by_way
        assert float(mixed[predicted]) == pytest.approx(float(mixed.max()), abs=1e-5)


def test_no_class_to_come_needs_no_prototype() -> None:
    labels = torch.arange(3).repeat(6)
    method = Fact(total=3)
    method.fit(torch.eye(3)[labels] + 0.1, labels)
    assert method.predict(torch.eye(3)).tolist() == [0, 1, 2]


def test_only_the_prototypes_nearest_to_an_image_have_a_say() -> None:
    method, asked, virtual = taught(64, 54, 1.0)
    z, vectors = method.geometry(asked)
    torch.testing.assert_close(virtual @ virtual.T, torch.eye(50), atol=1e-5, rtol=0)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        near = sorted(((float(row @ prototype), prototype) for prototype in virtual), key=lambda pair: -pair[0])[:40]
        votes = sum(nearness * (vectors @ prototype) for nearness, prototype in near)
        assert float(votes[predicted]) == pytest.approx(float(votes.max()), abs=1e-5)

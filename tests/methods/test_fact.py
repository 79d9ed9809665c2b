import torch

from masil.methods import Fact


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


def test_only_the_prototypes_nearest_to_an_image_have_a_say() -> None:
    labels = torch.arange(4).repeat(8)
    activations = torch.rand(32, 64, generator=torch.Generator().manual_seed(0)) + torch.eye(4, 64)[labels]
    asked = torch.rand(40, 64, generator=torch.Generator().manual_seed(1))
    method = Fact(total=54, eta=1.0)
    method.fit(activations, labels)
    z, vectors = method.geometry(asked)
    virtual = method.virtual_
    assert virtual is not None
    torch.testing.assert_close(virtual @ virtual.T, torch.eye(50), atol=1e-5, rtol=0)
    for row, predicted in zip(z, method.predict(asked), strict=True):
        near = sorted(((float(row @ prototype), prototype) for prototype in virtual), key=lambda pair: -pair[0])[:40]
        votes = sum(nearness * (vectors @ prototype) for nearness, prototype in near)
        assert int(predicted) == int(votes.argmax())

import torch
from torch.nn import functional

from masil.methods import Alice
from masil.methods.alice import central_means, partners


def test_partners_are_rows_of_the_partner_class() -> None:
    labels, partner = torch.tensor([2, 0, 1, 0, 2]), torch.tensor([1, 3, 0, 2])
    rows, second = partners(labels, partner)
    # Class 3 is not in the batch, so the row of class 1 has no partner.
    assert rows.tolist() == [0, 1, 3, 4]
    assert second.tolist() == [1, 2, 2, 1]


def test_a_class_that_is_its_own_partner_is_not_mixed() -> None:
    rows, second = partners(torch.zeros(3, dtype=torch.int64), torch.tensor([0]))
    assert len(rows) == len(second) == 0


def test_central_means_leave_out_what_is_far_from_the_centre() -> None:
    z = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) + 1
    labels = torch.arange(2).repeat(10)
    for label, mean in enumerate(central_means(z, labels, 3)):
        own = z[labels == label]
        order = functional.cosine_similarity(own, own.mean(0, keepdim=True)).argsort(descending=True)
        assert torch.allclose(mean, own[order[:3]].mean(0))
    assert torch.allclose(central_means(z, labels, 99)[0], z[labels == 0].mean(0))


def test_without_virtual_classes_only_real_ones_are_trained() -> None:
    labels = torch.arange(3).repeat(10)
    activations = torch.rand(30, 6, generator=torch.Generator().manual_seed(0)) + torch.eye(3, 6)[labels]
    with_them, without = Alice(), Alice(virtual=False)
    for method in (with_them, without):
        method.fit(activations, labels)
        assert method.predict(activations).equal(labels)
    assert with_them.map_ is not None
    assert without.map_ is not None
    assert not torch.allclose(with_them.map_.matrix, without.map_.matrix, atol=1e-4)

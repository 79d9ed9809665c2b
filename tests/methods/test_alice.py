import pytest
import torch
from scipy.stats import beta
from torch.nn import functional

from masil.errors import InputError
from masil.methods import Alice, Samples
from masil.methods.alice import AliceLoss, central_means, fused, fusion_shares


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(3, 2, 2), (5,)])
def test_fused_rows_become_the_virtual_class_of_their_pair(shape: tuple[int, ...]) -> None:
    k, n = 5, 200
    labels = torch.arange(n) % k
    rows = labels.float().reshape(n, *[1] * len(shape)).expand(n, *shape)
    mixed, virtual = fused(rows, labels, 1.0, k, seeded())
    pairs = [(a, b) for a in range(k) for b in range(a + 1, k)]
    for value, label, result in zip(mixed.flatten(1)[:, 0].tolist(), labels.tolist(), virtual.tolist(), strict=True):
        if result < k:
            assert (result, value) == (label, label)  # its partner was of the same class
        else:
            a, b = pairs[result - k]
            assert label in (a, b)
            share = (value - b) / (a - b) if label == a else (value - a) / (b - a)
            assert 0.4 - 1e-5 <= share <= 0.6 + 1e-5
    same, unchanged = fused(rows, labels, 0.0, k, seeded())
    assert torch.equal(same, rows)
    assert torch.equal(unchanged, labels)


def test_a_share_of_the_rows_is_fused_and_pairs_begin_halfway() -> None:
    labels = torch.arange(1000)
    _, virtual = fused(torch.zeros(1000, 1), labels, 0.3, 1000, seeded(1))
    assert 0.25 < float((virtual >= 1000).float().mean()) < 0.35
    means = torch.rand(4, 3, generator=seeded())
    loss = AliceLoss(fused=0.5)
    assert len(loss.starts(means)) == loss.virtual_classes(4) == 10
    torch.testing.assert_close(loss.starts(means)[4:6], (means[:1] + means[1:3]) / 2)
    assert AliceLoss(fused=0.0).virtual_classes(4) == len(AliceLoss(fused=0.0).starts(means)) == 4
    with pytest.raises(InputError, match="A share 1.5 of the images is to be fused"):
        AliceLoss(fused=1.5)


def test_fusion_shares_are_central_draws_of_a_beta_distribution() -> None:
    drawn = fusion_shares(20_000, seeded())
    assert 0.4 <= float(drawn.min()) <= float(drawn.max()) <= 0.6
    reference = beta(20, 20)
    outside = 2 * reference.cdf(0.4)
    assert float((drawn == 0.5).float().mean()) == pytest.approx(outside, abs=0.01)
    for level in (0.42, 0.47, 0.53):
        expected = reference.cdf(level) - reference.cdf(0.4) + (outside if level > 0.5 else 0)
        assert float((drawn < level).float().mean()) == pytest.approx(expected, abs=0.01)


def test_central_means_leave_out_what_is_far_from_the_centre() -> None:
    z = torch.randn(20, 4, generator=seeded()) + 1
    labels = torch.arange(2).repeat(10)
    for label, mean in enumerate(central_means(z, labels, 3)):
        rows = z[labels == label]
        order = functional.cosine_similarity(rows, rows.mean(0, keepdim=True)).argsort(descending=True)
        assert torch.allclose(mean, rows[order[:3]].mean(0))
    assert torch.allclose(central_means(z, labels, 99)[0], z[labels == 0].mean(0))


def test_without_virtual_classes_only_real_ones_are_trained(task) -> None:
    labels = torch.arange(3).repeat(10)
    base = Samples(torch.rand(30, 6, generator=seeded()) + torch.eye(3, 6)[labels], labels=labels)
    with_them, without = Alice(), Alice(virtual=False)
    for method in (with_them, without):
        method.fit(base, task(3))
        assert method.predict(base).equal(labels)
    assert not torch.allclose(with_them.g.matrix, without.g.matrix, atol=1e-4)

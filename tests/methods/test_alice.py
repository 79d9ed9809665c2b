import pytest
import torch
from scipy.stats import beta
from torch.nn import functional

from masil.collapse import cosine_cross_entropy
from masil.errors import InputError
from masil.methods import Alice, DCosine, Samples
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


def test_a_share_of_the_rows_is_fused() -> None:
    labels = torch.arange(1000)
    _, virtual = fused(torch.zeros(1000, 1), labels, 0.3, 1000, seeded(1))
    assert 0.25 < float((virtual >= 1000).float().mean()) < 0.35
    assert AliceLoss(fused=0.5).virtual_classes(4) == 4 + 6
    assert AliceLoss(fused=0.0).virtual_classes(4) == 4
    with pytest.raises(InputError, match="A share 1.5 of the images is to be fused"):
        AliceLoss(fused=1.5)


def test_each_view_is_seen_and_fused_ones_are_added() -> None:
    """Two views with one fused image each: as many images of real classes as of pairs, and the first view as it was."""
    pixels, labels = torch.rand(8, 3, 12, 12, generator=seeded()), torch.arange(8)
    loss = AliceLoss(fused=0.0, copies=1, count=2)
    assert loss.virtual_classes(8) == 8 + 28
    seen, virtual = loss.views(pixels, labels, 8, seeded(1))
    assert seen.shape == (32, 3, 12, 12)
    first, fused_first, second, fused_second = virtual.chunk(4)
    assert torch.equal(first, labels)
    assert torch.equal(second, labels)
    assert int((torch.cat([fused_first, fused_second]) >= 8).sum()) >= 8  # a partner may be the image itself
    assert torch.equal(seen[:8], pixels)
    assert not torch.allclose(seen[16:24], pixels, atol=0.01)
    with pytest.raises(InputError, match="0 views of an image and 1 fused ones for each were asked for"):
        AliceLoss(copies=1, count=0)


def test_on_a_shared_backbone_it_is_the_nearest_mean_of_five_central_images(task) -> None:
    labels = torch.arange(4).repeat(20)
    base = Samples(torch.rand(80, 6, generator=seeded()) + torch.eye(4, 6)[labels], labels=labels)
    method, plain = Alice(), DCosine()
    method.fit(base, task(4))
    plain.vectors = central_means(base.activations, labels, 5)
    shots = Samples(torch.rand(10, 6, generator=seeded(1)), labels=torch.tensor([4, 5]).repeat(5))
    for nearest in (method, plain):
        nearest.learn(shots)
    torch.testing.assert_close(method.scores(base), plain.scores(base))


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


def test_the_projector_stands_under_the_class_vectors_and_is_dropped(task) -> None:
    loss = AliceLoss(width=8).build(6, 10, seeded())
    a, labels = torch.rand(12, 6, generator=seeded(1)), torch.arange(12) % 4
    assert loss.class_vectors(4).shape == (4, 8)
    assert loss.vectors is not None
    expected = cosine_cross_entropy(loss.projector(a), loss.vectors, labels, 30.0, 0.4)
    torch.testing.assert_close(loss(a, labels, labels, torch.ones(12)), expected)
    base = Samples(a, labels=labels)
    method = Alice()
    method.fit(base, task(4))
    torch.testing.assert_close(method.geometry(base)[0], functional.normalize(a))

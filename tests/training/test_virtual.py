from itertools import combinations

import pytest
import torch
from masil.training.virtual import count, fused, fusion_shares, starts, turned
from scipy.stats import beta

from masil.errors import InputError
from masil.training import Recipe
from masil.training.batches import seeded


def recipe(**changes: float) -> Recipe:
    return Recipe("any", ((1, 8),), **changes)


def test_turned_images_become_virtual_classes() -> None:
    pixels = torch.arange(8 * 3 * 4 * 4, dtype=torch.uint8).reshape(8, 3, 4, 4)
    labels = torch.arange(8) % 2
    found, virtual = turned(pixels, labels, 1.0, 2, seeded(0))
    assert set((virtual // 2).tolist()) <= {1, 2, 3}
    assert torch.equal(virtual % 2, labels)
    for image, original, quarter in zip(found, pixels, virtual // 2, strict=True):
        assert torch.equal(image, original.rot90(int(quarter), (1, 2)))
    still, same = turned(pixels, labels, 0.0, 2, seeded(0))
    assert torch.equal(still, pixels)
    assert torch.equal(same, labels)


def test_fused_images_become_the_virtual_class_of_their_pair() -> None:
    k, n = 5, 400
    labels = torch.randint(k, (n,), generator=seeded(3))
    pixels = labels.float()[:, None, None, None].expand(n, 3, 2, 2)
    found, virtual = fused(pixels, labels, 1.0, k, seeded(0))
    pairs = list(combinations(range(k), 2))
    seen = set()
    for value, own, label in zip(found[:, 0, 0, 0].tolist(), labels.tolist(), virtual.tolist(), strict=True):
        if label < k:  # its partner was of the same class
            assert value == own == label
            continue
        low, high = pairs[label - k]
        seen.add((low, high))
        other = high if own == low else low
        share = (value - other) / (own - other)
        assert own in (low, high)
        assert 0.4 <= round(share, 5) <= 0.6
    assert seen == set(pairs)
    still, same = fused(pixels, labels, 0.0, k, seeded(0))
    assert torch.equal(still, pixels)
    assert torch.equal(same, labels)


def test_a_share_of_the_images_is_fused() -> None:
    labels = torch.arange(1000)
    _, virtual = fused(torch.zeros(1000, 1, 1, 1), labels, 0.3, 1000, seeded(1))
    assert float((virtual >= 1000).float().mean()) == pytest.approx(0.3, abs=0.05)


def test_virtual_classes_start_where_their_images_are() -> None:
    means = torch.rand(4, 3, generator=seeded(2))
    pairs = starts(means, recipe(fused=0.5))
    assert len(pairs) == count(4, recipe(fused=0.5)) == 10
    for row, (low, high) in zip(pairs[4:], combinations(range(4), 2), strict=True):
        torch.testing.assert_close(row, (means[low] + means[high]) / 2)
    turns = starts(means, recipe(rotated=0.5))
    assert len(turns) == count(4, recipe(rotated=0.5)) == 16
    assert torch.equal(turns[12:], means)
    assert torch.equal(starts(means, recipe()), means)
    assert count(4, recipe()) == 4


def test_shares_are_checked() -> None:
    with pytest.raises(InputError, match="A share 1.5 of the images is to be fused"):
        recipe(fused=1.5)
    with pytest.raises(InputError, match="turned or fused to make virtual classes, not both"):
        recipe(fused=0.5, rotated=0.5)


def test_fusion_shares_are_central_draws_of_a_beta_distribution() -> None:
    drawn = fusion_shares(20_000, seeded(0))
    assert 0.4 <= float(drawn.min()) <= float(drawn.max()) <= 0.6
    reference = beta(20, 20)
    outside = 2 * reference.cdf(0.4)
    assert float((drawn == 0.5).float().mean()) == pytest.approx(outside, abs=0.01)
    for level in (0.42, 0.47, 0.53):
        expected = reference.cdf(level) - reference.cdf(0.4) + (outside if level > 0.5 else 0)
        assert float((drawn < level).float().mean()) == pytest.approx(expected, abs=0.01)

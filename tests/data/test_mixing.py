import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.data import mixing
from masil.data.augment import draw_centres
from masil.data.mixing import cutmix, mixup
from masil.errors import InputError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=8, c=3, h=10, w=12, seed=1):
    return torch.rand(n, c, h, w, generator=seeded(seed))


@settings(deadline=None)
@given(alpha=st.floats(0.05, 5), seed=st.integers(0, 999))
def test_mixup_blends_each_image_with_its_partner(alpha, seed):
    x = pictures()
    images, partner, lam = mixup(x, alpha, seeded(seed))
    assert sorted(partner.tolist()) == list(range(8))
    for i in range(8):
        share = float(lam[i])
        assert 0 <= share <= 1
        torch.testing.assert_close(images[i], share * x[i] + (1 - share) * x[partner[i]], atol=1e-6, rtol=0)


@settings(deadline=None)
@given(alpha=st.floats(0.05, 5), seed=st.integers(0, 999))
def test_cutmix_pastes_a_box_and_keeps_the_share_that_is_left(alpha, seed):
    x = pictures()
    images, partner, lam = cutmix(x, alpha, seeded(seed))
    generator = seeded(seed)
    drawn, expected_partner = mixing.draw_partners(8, alpha, generator)
    assert torch.equal(partner, expected_partner)
    for i, (row, column) in enumerate(draw_centres(8, (10, 12), generator).tolist()):
        side = (1 - drawn[i]) ** 0.5
        height, width = int(side * 10), int(side * 12)
        expected, pasted = x[i].clone(), 0
        for r in range(row - height // 2, row - height // 2 + height):
            for s in range(column - width // 2, column - width // 2 + width):
                if 0 <= r < 10 and 0 <= s < 12:
                    expected[:, r, s] = x[partner[i], :, r, s]
                    pasted += 1
        assert torch.equal(images[i], expected)
        assert float(lam[i]) == pytest.approx(1 - pasted / 120, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 0.8, 1.0, 4.0])
def test_lambda_has_the_mean_and_variance_of_a_beta(alpha):
    lam, _ = mixing.draw_partners(20_000, alpha, seeded())
    assert float(lam.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(lam.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_mixing_repeats_with_its_seed_keeps_the_range_and_leaves_its_input(mix):
    x = pictures()
    before = x.clone()
    first, second = mix(x, 1.0, seeded()), mix(x, 1.0, seeded())
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(x, before)
    assert first.images.min() >= 0
    assert first.images.max() <= 1
    assert first.lam.dtype == torch.float32
    assert len(mix(pictures(0), 1.0, seeded()).images) == 0
    channels_last = mix(x.to(memory_format=torch.channels_last), 1.0, seeded())
    torch.testing.assert_close(channels_last.images, first.images)
    assert first.lam.unique().numel() > 1


@pytest.mark.parametrize("mix", [mixup, cutmix])
@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_alpha_must_be_positive(mix, alpha):
    with pytest.raises(InputError, match=f"α > 0, but α is {alpha}"):
        mix(pictures(), alpha, seeded())

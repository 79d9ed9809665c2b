import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from masil.data import Augmentation, augment, mixup
from masil.data.augment import cutmix, cutout, draw_centres, draw_factors, draw_partners, jitter, recolour
from masil.data.geometry import flip, pad_crop, random_resized_crop, resize, rotate
from masil.errors import InputError, UnknownNameError

FULL = {"flip": 0.5, "rotation": 10.0, "brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "cutout": 0.25}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=6, side=16):
    return torch.randint(0, 256, (n, 3, side, side), generator=seeded(1), dtype=torch.uint8)


def floats(n=6, c=3, h=10, w=12, seed=1):
    return torch.rand(n, c, h, w, generator=seeded(seed))


def test_the_order_is_crop_resize_flip_rotation_colour_cutout():
    x, generator = pictures(), seeded(4)
    expected = pad_crop(x.float() / 255, 2, generator)
    expected = flip(resize(expected, 12), generator, 0.5)
    expected = jitter(rotate(expected, 10.0, generator), (0.4, 0.3, 0.2), generator)
    expected = cutout(expected, 0.25, 0.5, generator)
    assert torch.equal(augment(x, Augmentation(crop="pad", pad=2, **FULL), 12, seeded(4)), expected)
    # A resized crop goes straight to the size.
    expected = random_resized_crop(x.float() / 255, 12, (0.3, 0.9), (0.8, 1.2), seeded())
    assert torch.equal(augment(x, Augmentation("resized", scale=(0.3, 0.9), ratio=(0.8, 1.2)), 12, seeded()), expected)


@settings(deadline=None)
@given(
    crop=st.sampled_from(["pad", "resized", None]),
    size=st.integers(4, 24),
    strength=st.floats(0, 2),
    seed=st.integers(0, 999),
)
def test_results_are_floats_of_the_size_in_range_and_repeat_with_their_seed(crop, size, strength, seed):
    settings = {**FULL, "brightness": strength, "contrast": strength, "saturation": strength}
    augmentation = Augmentation(crop=crop, **settings)
    result = augment(pictures(), augmentation, size, seeded(seed))
    assert result.shape == (6, 3, size, size)
    assert result.dtype == torch.float32
    assert result.min() >= 0
    assert result.max() <= 1 + 1e-6
    assert torch.equal(result, augment(pictures(), augmentation, size, seeded(seed)))


def test_the_plain_augmentation_only_scales_to_one_and_resizes():
    x = pictures()
    before = x.clone()
    assert torch.equal(augment(x, Augmentation(), 16, seeded()), x / 255)
    assert torch.equal(augment(x / 255, Augmentation(), 16, seeded()), x / 255)
    assert torch.equal(augment(x, Augmentation(), 8, seeded()), resize(x / 255, 8))
    assert torch.equal(x, before)


@settings(deadline=None)
@given(
    st.builds(
        Augmentation,
        crop=st.sampled_from(["pad", "resized", None]),
        pad=st.integers(0, 8),
        scale=st.sampled_from([(0.6, 1.0), (0.08, 1.0)]),
        flip=st.floats(0, 1),
        rotation=st.floats(0, 180),
        brightness=st.floats(0, 2),
        cutout=st.floats(0, 1),
    )
)
def test_an_augmentation_survives_json(augmentation):
    assert Augmentation(**json.loads(json.dumps(asdict(augmentation)))) == augmentation


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pad": -1}, "pads by -1 px"),
        ({"scale": (0.0, 1.0)}, r"share of the area is in \(0.0, 1.0\)"),
        ({"scale": (0.5, 1.5)}, "lowest <= highest <= 1"),
        ({"ratio": (1.0, 0.5)}, r"width : height is in \(1.0, 0.5\)"),
        ({"flip": 2.0}, r"probability of a flip is 2.0, but must lie in \[0, 1\]"),
        ({"rotation": 270.0}, "270.0 degrees"),
        ({"saturation": -0.4}, "jitter of saturation is -0.4, but must be a number of at least 0"),
        ({"contrast": float("nan")}, "jitter of contrast is nan"),
        ({"brightness": float("inf")}, "jitter of brightness is inf"),
        ({"cutout": 8}, "side of a cutout, as a fraction of the image's, is 8"),
        ({"cutout_probability": -0.1}, "probability of a cutout is -0.1"),
        ({"crop": "resize"}, "no crop called 'resize'; did you mean 'resized'"),
    ],
)
def test_values_out_of_range_are_refused_when_they_are_written_down(settings, sentence):
    with pytest.raises((InputError, UnknownNameError), match=sentence):
        Augmentation(**settings)


def test_what_is_not_a_batch_of_images_or_too_small_to_pad_is_refused():
    with pytest.raises(InputError, match="Reflection by 4 px needs 0 <= pad < 3"):
        augment(pictures(side=3), Augmentation(crop="pad"), 3, seeded())
    for batch, sentence in (
        (pictures()[0], r"shape \[n c h w\], but have \[3, 16, 16\]"),
        (pictures().int(), r"floating point in \[0, 1\], but are torch.int32"),
    ):
        for change in (lambda x: augment(x, Augmentation(), 8, seeded()), lambda x: mixup(x, 1.0, seeded())):
            with pytest.raises(InputError, match=sentence):
                change(batch)


def test_recolour_is_brightness_then_contrast_then_saturation():
    x = floats()
    factors = [draw_factors(6, strength, seeded(i)) for i, strength in enumerate((0.4, 0.8, 1.5))]
    brightness, contrast, saturation = (factor.double().numpy()[:, None, None, None] for factor in factors)
    weights = np.array([0.299, 0.587, 0.114])[:, None, None]
    bright = (x.double().numpy() * brightness).clip(0, 1)
    mean = (bright * weights).sum(1, keepdims=True).mean((2, 3), keepdims=True)
    strong = (mean + contrast * (bright - mean)).clip(0, 1)
    own = (strong * weights).sum(1, keepdims=True)
    expected = (own + saturation * (strong - own)).clip(0, 1)
    torch.testing.assert_close(recolour(x, *factors), torch.tensor(expected).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_each_factor_means_what_pillow_means_by_it(position):
    enhancer = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[position]
    x = torch.randint(0, 256, (1, 3, 9, 7), generator=seeded(), dtype=torch.uint8)
    picture = Image.fromarray(x[0].permute(1, 2, 0).numpy())
    for factor in (0.0, 0.6, 1.0, 1.4):
        factors = [None, None, None]
        factors[position] = torch.tensor([factor])
        ours = recolour(x.float() / 255, *factors)[0] * 255
        theirs = torch.tensor(np.asarray(enhancer(picture).enhance(factor))).permute(2, 0, 1)
        assert (ours - theirs).abs().max() <= 1.5 * max(1, factor)  # Pillow rounds grey to whole numbers


def test_factors_lie_in_their_range_and_never_below_zero_and_centres_are_any_pixel():
    factors = draw_factors(10_000, 0.4, seeded())
    assert factors.min() == pytest.approx(0.6, abs=1e-3)
    assert factors.max() == pytest.approx(1.4, abs=1e-3)
    assert draw_factors(1000, 3.0, seeded()).min() >= 0
    assert draw_factors(5, 0.0, seeded()) is None
    centres = draw_centres(5000, (3, 5), seeded())
    counts = torch.bincount(centres[:, 0] * 5 + centres[:, 1], minlength=15)
    assert (counts / 5000 - 1 / 15).abs().max() < 0.015


def test_jitter_keeps_the_range_repeats_with_its_seed_and_leaves_its_input():
    x = floats()
    before = x.clone()
    result = jitter(x, (0.9, 0.9, 0.9), seeded())
    assert result.min() >= 0
    assert result.max() <= 1
    assert torch.equal(result, jitter(x, (0.9, 0.9, 0.9), seeded()))
    assert not torch.equal(result, jitter(x, (0.9, 0.9, 0.9), seeded(1)))
    assert torch.equal(x, before)
    assert jitter(x, (0, 0, 0), seeded()) is x
    twins = x[:1].expand(2, -1, -1, -1)
    assert not torch.equal(*jitter(twins, (0.4, 0, 0), seeded()))
    grey = floats(c=1)  # has no saturation to change
    torch.testing.assert_close(jitter(grey, (0, 0, 0.9), seeded()), grey)
    with pytest.raises(InputError, match="1 or 3 channels, but these have 4"):
        jitter(floats(c=4), (0, 0.5, 0), seeded())


def test_cutout_hides_a_clipped_square_under_the_mean_colour():
    x = floats(200, h=10, w=12)
    result = cutout(x, 0.4, 1.0, seeded())
    # The same draws in the same order: who is chosen, then the centres.
    generator = seeded()
    torch.rand(200, generator=generator)
    centres = draw_centres(200, (10, 12), generator)
    for image, (row, column), hidden in zip(x, centres.tolist(), result, strict=True):
        expected = image.clone()
        for i in range(max(0, row - 2), min(10, row + 2)):
            for j in range(max(0, column - 2), min(12, column + 2)):
                expected[:, i, j] = image.mean((1, 2))
        torch.testing.assert_close(hidden, expected)


def test_cutout_takes_its_share_of_the_images():
    x = floats(1000)
    touched = (cutout(x, 0.5, 0.3, seeded()) != x).flatten(1).any(1)
    assert touched.float().mean() == pytest.approx(0.3, abs=0.05)
    assert cutout(x, 0.0, 1.0, seeded()) is x
    assert cutout(x, 0.5, 0.0, seeded()) is x
    assert torch.equal(cutout(x, 0.5, 0.3, seeded()), cutout(x, 0.5, 0.3, seeded()))


@settings(deadline=None)
@given(alpha=st.floats(0.05, 5), seed=st.integers(0, 999))
def test_mixup_blends_each_image_with_its_partner(alpha, seed):
    x = floats(8)
    images, partner, lam = mixup(x, alpha, seeded(seed))
    assert sorted(partner.tolist()) == list(range(8))
    for i in range(8):
        share = float(lam[i])
        assert 0 <= share <= 1
        torch.testing.assert_close(images[i], share * x[i] + (1 - share) * x[partner[i]], atol=1e-6, rtol=0)


@settings(deadline=None)
@given(alpha=st.floats(0.05, 5), seed=st.integers(0, 999))
def test_cutmix_pastes_a_box_and_keeps_the_share_that_is_left(alpha, seed):
    x = floats(8)
    images, partner, lam = cutmix(x, alpha, seeded(seed))
    generator = seeded(seed)
    drawn, expected_partner = draw_partners(8, alpha, generator)
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
    lam, _ = draw_partners(20_000, alpha, seeded())
    assert float(lam.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(lam.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


@pytest.mark.parametrize("mix", [mixup, cutmix])
def test_mixing_repeats_with_its_seed_keeps_the_range_and_leaves_its_input(mix):
    x = floats(8)
    before = x.clone()
    first, second = mix(x, 1.0, seeded()), mix(x, 1.0, seeded())
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(x, before)
    assert first.images.min() >= 0
    assert first.images.max() <= 1
    assert first.lam.dtype == torch.float32
    assert len(mix(floats(0), 1.0, seeded()).images) == 0
    channels_last = mix(x.to(memory_format=torch.channels_last), 1.0, seeded())
    torch.testing.assert_close(channels_last.images, first.images)
    assert first.lam.unique().numel() > 1
    for alpha in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match=f"α > 0, but α is {alpha}"):
            mix(x, alpha, seeded())

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from masil.data import colour
from masil.data.colour import cutout, jitter
from masil.errors import InputError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=6, c=3, h=10, w=12, seed=1):
    return torch.rand(n, c, h, w, generator=seeded(seed))


def clip(value):
    return min(max(value, 0.0), 1.0)


def recoloured(image, brightness, contrast, saturation):
    """Pixel by pixel, in plain numbers."""
    h, w = len(image[0]), len(image[0][0])
    pixels = [[[image[c][i][j] for c in range(3)] for j in range(w)] for i in range(h)]
    pixels = [[[clip(value * brightness) for value in pixel] for pixel in row] for row in pixels]
    grey = [[0.299 * r + 0.587 * g + 0.114 * b for r, g, b in row] for row in pixels]
    mean = sum(map(sum, grey)) / (h * w)
    pixels = [[[clip(mean + contrast * (value - mean)) for value in pixel] for pixel in row] for row in pixels]
    for row in pixels:
        for j, (r, g, b) in enumerate(row):
            own = 0.299 * r + 0.587 * g + 0.114 * b
            row[j] = [clip(own + saturation * (value - own)) for value in (r, g, b)]
    return [[[pixels[i][j][c] for j in range(w)] for i in range(h)] for c in range(3)]


def test_recolour_is_brightness_then_contrast_then_saturation_pixel_by_pixel():
    x = pictures()
    factors = [colour.draw_factors(6, strength, seeded(i)) for i, strength in enumerate((0.4, 0.8, 1.5))]
    result = colour.recolour(x, *factors)
    for i in range(6):
        expected = recoloured(x[i].double().tolist(), *(float(factor[i]) for factor in factors))
        torch.testing.assert_close(result[i], torch.tensor(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_each_factor_means_what_pillow_means_by_it(position):
    enhancer = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[position]
    x = torch.randint(0, 256, (1, 3, 9, 7), generator=seeded(), dtype=torch.uint8)
    picture = Image.fromarray(x[0].permute(1, 2, 0).numpy())
    for factor in (0.0, 0.6, 1.0, 1.4):
        factors = [None, None, None]
        factors[position] = torch.tensor([factor])
        ours = colour.recolour(x.float() / 255, *factors)[0] * 255
        theirs = torch.tensor(np.asarray(enhancer(picture).enhance(factor))).permute(2, 0, 1)
        assert (ours - theirs).abs().max() <= 1.5 * max(1, factor)  # Pillow rounds grey to whole numbers


def test_factors_lie_in_their_range_and_never_below_zero():
    factors = colour.draw_factors(10_000, 0.4, seeded())
    assert factors.min() == pytest.approx(0.6, abs=1e-3)
    assert factors.max() == pytest.approx(1.4, abs=1e-3)
    assert colour.draw_factors(1000, 3.0, seeded()).min() >= 0
    assert colour.draw_factors(5, 0.0, seeded()) is None


def test_jitter_keeps_the_range_repeats_with_its_seed_and_leaves_its_input():
    x = pictures()
    before = x.clone()
    result = jitter(x, 0.9, 0.9, 0.9, seeded())
    assert result.min() >= 0
    assert result.max() <= 1
    assert torch.equal(result, jitter(x, 0.9, 0.9, 0.9, seeded()))
    assert not torch.equal(result, jitter(x, 0.9, 0.9, 0.9, seeded(1)))
    assert torch.equal(x, before)
    assert jitter(x, 0, 0, 0, seeded()) is x
    twins = x[:1].expand(2, -1, -1, -1)
    assert not torch.equal(*jitter(twins, 0.4, 0, 0, seeded()))


def test_grey_images_have_no_saturation_to_change():
    x = pictures(c=1)
    torch.testing.assert_close(jitter(x, 0, 0, 0.9, seeded()), x)
    with pytest.raises(InputError, match="1 or 3 channels, but these have 4"):
        jitter(pictures(c=4), 0, 0.5, 0, seeded())


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_jitter_must_be_a_number_from_zero(value):
    with pytest.raises(InputError, match=f"jitter of contrast is {value}, but must be a number of at least 0"):
        jitter(pictures(), 0, value, 0, seeded())


def test_cutout_hides_a_clipped_square_under_the_mean_colour():
    x = pictures(200, h=10, w=12)
    result = cutout(x, 0.4, 1.0, seeded())
    # The same draws in the same order: who is chosen, then the centres.
    generator = seeded()
    torch.rand(200, generator=generator)
    centres = colour.draw_centres(200, (10, 12), generator)
    for image, (row, column), hidden in zip(x, centres.tolist(), result, strict=True):
        expected = image.clone()
        for i in range(max(0, row - 2), min(10, row + 2)):
            for j in range(max(0, column - 2), min(12, column + 2)):
                expected[:, i, j] = image.mean((1, 2))
        torch.testing.assert_close(hidden, expected)


def test_cutout_takes_its_share_of_the_images():
    x = pictures(1000)
    touched = (cutout(x, 0.5, 0.3, seeded()) != x).flatten(1).any(1)
    assert touched.float().mean() == pytest.approx(0.3, abs=0.05)
    assert cutout(x, 0.0, 1.0, seeded()) is x
    assert cutout(x, 0.5, 0.0, seeded()) is x
    assert torch.equal(cutout(x, 0.5, 0.3, seeded()), cutout(x, 0.5, 0.3, seeded()))


def test_centres_are_any_pixel():
    centres = colour.draw_centres(5000, (3, 5), seeded())
    counts = torch.bincount(centres[:, 0] * 5 + centres[:, 1], minlength=15)
    assert (counts / 5000 - 1 / 15).abs().max() < 0.015


def test_cutout_refuses_what_is_no_fraction():
    with pytest.raises(InputError, match=r"side of a cutout, as a fraction of the image's, is 16, but"):
        cutout(pictures(), 16, 0.5, seeded())
    with pytest.raises(InputError, match=r"probability of a cutout is 1.5, but must lie in \[0, 1\]"):
        cutout(pictures(), 0.5, 1.5, seeded())

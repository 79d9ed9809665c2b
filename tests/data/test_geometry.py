import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage
from torch.nn import functional

from masil.data import geometry
from masil.data.geometry import flip, pad_crop, random_resized_crop, resize, rotate
from masil.errors import InputError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=5, c=3, h=12, w=12, seed=1):
    return torch.rand(n, c, h, w, generator=seeded(seed))


ALL = {
    "resize": lambda x, g: resize(x, 7),
    "flip": lambda x, g: flip(x, g),
    "pad_crop": lambda x, g: pad_crop(x, 3, g),
    "random_resized_crop": lambda x, g: random_resized_crop(x, 9, (0.2, 1.0), (0.5, 2.0), g),
    "rotate": lambda x, g: rotate(x, 40, g),
}


@pytest.mark.parametrize("name", ALL)
def test_a_seed_gives_the_same_images_and_the_input_stays_as_it_was(name):
    x = pictures()
    before = x.clone()
    first, second = ALL[name](x, seeded(3)), ALL[name](x, seeded(3))
    assert torch.equal(first, second)
    assert torch.equal(x, before)
    assert first.min() >= 0
    assert first.max() <= 1 + 1e-6
    assert len(ALL[name](pictures(0), seeded())) == 0
    wide = pictures(h=14, w=10)
    torch.testing.assert_close(
        ALL[name](wide.to(memory_format=torch.channels_last), seeded()), ALL[name](wide, seeded())
    )


@pytest.mark.parametrize("name", ["flip", "pad_crop", "random_resized_crop", "rotate"])
def test_every_image_has_its_own_parameters_and_another_seed_other_ones(name):
    x = pictures(1).expand(16, -1, -1, -1)
    result = ALL[name](x, seeded())
    assert not torch.equal(result[0].expand_as(result), result)
    assert not torch.equal(ALL[name](x, seeded(1)), result)


@pytest.mark.parametrize("size", [5, 12, 17])
def test_resize_is_pillow_s_bilinear_resize_of_each_channel(size):
    x = pictures(2, 3, 16, 11)
    result = resize(x, size)
    for i in range(2):
        for c in range(3):
            picture = Image.fromarray(x[i, c].numpy()).resize((size, size), Image.Resampling.BILINEAR)
            torch.testing.assert_close(result[i, c], torch.tensor(np.asarray(picture)), atol=1e-5, rtol=0)


def test_flip_mirrors_the_chosen_images_only():
    x = pictures(64)
    result = flip(x, seeded(), 0.3)
    mirrored = 0
    for before, after in zip(x, result, strict=True):
        reversed_rows = torch.stack([before[:, :, before.shape[2] - 1 - j] for j in range(before.shape[2])], 2)
        assert torch.equal(after, before) or torch.equal(after, reversed_rows)
        mirrored += int(torch.equal(after, reversed_rows))
    assert 8 <= mirrored <= 32
    assert torch.equal(flip(x, seeded(), 0), x)
    assert torch.equal(flip(x, seeded(), 1), x.flip(3))


@settings(deadline=None)
@given(h=st.integers(2, 9), w=st.integers(2, 9), seed=st.integers(0, 99))
def test_shift_is_a_reflecting_pad_and_a_crop(h, w, seed):
    pad = min(h, w) - 1
    x = pictures(4, 2, h, w, seed)
    moves = geometry.draw_shifts(4, pad, seeded(seed))
    result = geometry.shift(x, moves)
    for image, (down, right), shifted in zip(x, moves.tolist(), result, strict=True):
        padded = functional.pad(image, (pad, pad, pad, pad), mode="reflect")
        assert torch.equal(shifted, padded[:, pad + down : pad + down + h, pad + right : pad + right + w])


def test_shifts_cover_the_whole_range_evenly_and_need_room_to_reflect():
    moves = geometry.draw_shifts(20_000, 4, seeded())
    counts = torch.bincount(moves.flatten() + 4, minlength=9)
    assert len(counts) == 9
    assert (counts / counts.sum() - 1 / 9).abs().max() < 0.01
    x = pictures()
    assert torch.equal(pad_crop(x, 0, seeded()), x)
    with pytest.raises(InputError, match="Reflection by 12 px needs 0 <= pad < 12"):
        pad_crop(x, 12, seeded())


@settings(deadline=None)
@given(h=st.integers(3, 20), w=st.integers(3, 20), size=st.integers(1, 24), seed=st.integers(0, 999))
def test_crop_resize_is_slicing_and_an_antialiased_resize_of_each_image(h, w, size, seed):
    x = pictures(4, 3, h, w, seed)
    boxes = geometry.draw_boxes(4, (h, w), (0.05, 1.0), (0.4, 2.5), seeded(seed))
    result = geometry.crop_resize(x, boxes, size)
    for image, (top, left, height, width), cut in zip(x, boxes.tolist(), result, strict=True):
        piece = image[None, :, top : top + height, left : left + width]
        expected = functional.interpolate(piece, size=(size, size), mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(cut, expected, atol=2e-6, rtol=0)


def test_boxes_have_the_area_and_the_ratio_that_were_asked_for():
    top, left, height, width = geometry.draw_boxes(5000, (200, 160), (0.3, 0.5), (0.75, 1.5), seeded()).unbind(1)
    share, aspect = height * width / (200 * 160), width / height
    assert share.min() > 0.29
    assert share.max() < 0.51
    assert share.mean() == pytest.approx(0.4, abs=0.005)
    assert aspect.min() > 0.74
    assert aspect.max() < 1.52
    assert aspect.log().mean() == pytest.approx((math.log(0.75) + math.log(1.5)) / 2, abs=0.02)
    assert top.min() == left.min() == 0
    assert (top + height).max() == 200
    assert (left + width).max() == 160


@pytest.mark.parametrize(("shape", "box"), [((10, 100), (0, 40, 10, 20)), ((100, 10), (40, 0, 20, 10))])
def test_a_box_that_never_fits_becomes_the_largest_central_one(shape, box):
    assert geometry.draw_boxes(3, shape, (1.0, 1.0), (0.5, 2.0), seeded()).tolist() == [list(box)] * 3


def test_the_whole_image_at_its_own_size_is_the_identity():
    x = pictures()
    torch.testing.assert_close(random_resized_crop(x, 12, (1, 1), (1, 1), seeded()), x)
    assert resize(x, 12) is x
    assert rotate(x, 0, seeded()) is x
    for resized in (resize, lambda x, size: random_resized_crop(x, size, (1, 1), (1, 1), seeded())):
        with pytest.raises(InputError, match="cannot be resized to 0 px"):
            resized(x, 0)


@pytest.mark.parametrize(("h", "w"), [(7, 7), (6, 9)])
def test_turn_samples_each_pixel_where_it_was_before(h, w):
    x, angles = pictures(4, 2, h, w), torch.tensor([25.0, -70.0, 160.0, 90.0])
    down, right = np.mgrid[:h, :w] - np.array([(h - 1) / 2, (w - 1) / 2])[:, None, None]
    for image, angle, turned in zip(x.numpy(), angles.deg2rad().tolist(), geometry.turn(x, angles), strict=True):
        cos, sin = math.cos(angle), math.sin(angle)
        before = (h - 1) / 2 + cos * down + sin * right, (w - 1) / 2 - sin * down + cos * right
        expected = [ndimage.map_coordinates(channel, before, order=1, mode="reflect") for channel in image]
        torch.testing.assert_close(turned, torch.tensor(np.stack(expected)), atol=1e-5, rtol=0)
    square = pictures(5)
    torch.testing.assert_close(
        geometry.turn(square, torch.full((5,), 90.0)), square.rot90(1, (2, 3)), atol=1e-5, rtol=0
    )


def test_rotations_go_both_ways_within_their_limit():
    x = pictures(1000, 1, 3, 3)
    angles = -30 + 60 * torch.rand(1000, generator=seeded())
    assert torch.equal(rotate(x, 30, seeded()), geometry.turn(x, angles))

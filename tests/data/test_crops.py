import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from masil.data.crops import crop_corners, crops, cut
from masil.errors import InputError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=3, c=3, h=20, w=24, seed=1):
    return torch.rand(n, c, h, w, generator=seeded(seed))


@settings(deadline=None)
@given(k=st.integers(1, 5), side=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 99))
def test_crops_are_slices_resized_by_pillow_image_by_image(k, side, size, seed):
    x = pictures(c=1)
    result = crops(x, k, side, size, seeded(seed))
    corners = crop_corners(x, k, side, seeded(seed))
    assert result.shape == (3 * k, 1, size, size)
    for i in range(3):
        for j in range(k):
            top, left = corners[i, j].tolist()
            square = Image.fromarray(x[i, 0, top : top + side, left : left + side].numpy())
            expected = torch.tensor(np.asarray(square.resize((size, size), Image.Resampling.BILINEAR)))
            torch.testing.assert_close(result[i * k + j, 0], expected, atol=1e-5, rtol=0)


def test_a_crop_that_is_not_resized_is_the_slice_itself_in_any_type_and_layout():
    x = (pictures() * 255).to(torch.uint8)
    corners = crop_corners(x, 4, 7, seeded())
    for images in (x, x.float(), x.to(memory_format=torch.channels_last)):
        result = cut(images, corners, 7, 7)
        assert result.dtype == images.dtype
        for i in range(3):
            for j, (top, left) in enumerate(corners[i].tolist()):
                assert torch.equal(result[i * 4 + j], images[i, :, top : top + 7, left : left + 7])


def test_uint8_crops_are_the_rounded_float_crops():
    x = (pictures() * 255).to(torch.uint8)
    result = crops(x, 10, 18, 32, seeded())
    assert result.dtype == torch.uint8
    assert torch.equal(result, crops(x.float(), 10, 18, 32, seeded()).round().to(torch.uint8))


def test_a_seed_gives_the_same_crops_and_each_image_its_own():
    x = pictures(2)
    assert torch.equal(crops(x, 10, 9, 16, seeded()), crops(x, 10, 9, 16, seeded()))
    corners = crop_corners(x, 10, 9, seeded())
    assert not torch.equal(corners[0], corners[1])
    assert not torch.equal(corners, crop_corners(x, 10, 9, seeded(1)))


def test_corners_are_any_place_that_fits():
    corners = crop_corners(pictures(500), 20, 18, seeded())
    counts = torch.bincount(corners[..., 0].flatten() * 7 + corners[..., 1].flatten(), minlength=21)
    assert len(counts) == 21
    assert (counts / counts.sum() - 1 / 21).abs().max() < 0.01
    assert crop_corners(pictures(w=20), 3, 20, seeded()).abs().sum() == 0


def test_crops_that_cannot_be_cut_are_refused():
    with pytest.raises(InputError, match="Crops of 64 px do not fit into images of 20 × 24 px"):
        crops(pictures(), 10, 64, 64, seeded())
    with pytest.raises(InputError, match="asked for 0 crops"):
        crops(pictures(), 0, 8, 8, seeded())
    with pytest.raises(InputError, match="resized to 0 px"):
        crops(pictures(), 1, 8, 0, seeded())
    with pytest.raises(InputError, match=r"shape \[n c h w\]"):
        crops(pictures()[0], 1, 8, 8, seeded())

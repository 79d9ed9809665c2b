import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from masil.data import ArrayImages, Dataset, Framing
from masil.errors import InputError


def noise(n: int, h: int = 8, w: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, h, w), dtype=np.uint8)


def array(n: int = 6, **size: int) -> ArrayImages:
    return ArrayImages(noise(n, **size), torch.arange(n) % 3)


@pytest.mark.parametrize(("resize", "crop"), [(8, 9), (4, 0), (0, 0), (5, -1)])
def test_a_framing_cuts_out_of_what_it_resizes(resize: int, crop: int) -> None:
    with pytest.raises(InputError, match=rf"A framing cuts {crop} px out of {resize} px"):
        Framing(resize, crop)


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 64), st.integers(0, 32))
def test_a_resized_picture_keeps_its_shape_and_holds_the_crop(h: int, w: int, crop: int, margin: int) -> None:
    framing = Framing(crop + margin, crop)
    height, width = framing.resized(h, w)
    assert min(height, width) == framing.resize
    assert height == pytest.approx(framing.resize * h / min(h, w), abs=0.5)
    assert width == pytest.approx(framing.resize * w / min(h, w), abs=0.5)


def test_images_of_the_right_size_come_back_bit_for_bit_in_the_order_asked_for() -> None:
    images = array()
    assert torch.equal(images.load([4, 0, 4], Framing(8, 8)), torch.from_numpy(images.pixels[[4, 0, 4]]))


@pytest.mark.parametrize(("h", "w"), [(8, 8), (40, 60), (60, 40), (33, 91)])
def test_other_sizes_are_resized_and_cut_as_pillow_does_it(h: int, w: int) -> None:
    images, framing = array(2, h=h, w=w), Framing(20, 16)
    height, width = framing.resized(h, w)
    top, left = (height - 16) // 2, (width - 16) // 2
    expected = [
        np.asarray(Image.fromarray(x.transpose(1, 2, 0)).resize((width, height), Image.Resampling.BILINEAR))
        for x in images.pixels
    ]
    squares = torch.from_numpy(np.stack(expected)).permute(0, 3, 1, 2)[:, :, top : top + 16, left : left + 16]
    assert (images.load(slice(None), framing).int() - squares.int()).abs().max() <= 1


def test_loading_never_hands_out_the_stored_pixels() -> None:
    images = array()
    before = images.pixels.copy()
    images.load(slice(0, 3), Framing(8, 8)).zero_()
    assert np.array_equal(images.pixels, before)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 11), max_size=20), st.data())
def test_a_subset_of_a_subset_is_the_subset_of_the_composition(first: list[int], data: st.DataObject) -> None:
    images = array(12)
    second = data.draw(st.lists(st.integers(0, len(first) - 1), max_size=10)) if first else []
    once, twice = images.subset([first[i] for i in second]), images.subset(first).subset(second)
    assert torch.equal(once.labels, twice.labels)
    assert torch.equal(once.load(slice(None), Framing(8, 8)), twice.load(slice(None), Framing(8, 8)))
    assert once.fingerprint() == twice.fingerprint()
    assert [once.name(i) for i in range(len(once))] == [twice.name(i) for i in range(len(twice))]
    assert once.pixels is images.pixels


def test_a_mask_chooses_where_it_is_true() -> None:
    images = array()
    mask = images.labels == 1
    assert torch.equal(images.subset(mask).rows, torch.tensor([1, 4]))
    with pytest.raises(InputError, match="A mask of 2 was given for 6 images"):
        images.subset(torch.tensor([True, False]))


@pytest.mark.parametrize("wrong", [6, -1])
def test_a_position_that_is_not_there_is_named(wrong: int) -> None:
    with pytest.raises(InputError, match=f"Image {wrong} was asked for, but there are 6, counted from 0"):
        array().load([0, wrong], Framing(8, 8))


def test_no_image_is_loaded_as_an_empty_batch() -> None:
    assert array().load([], Framing(20, 16)).shape == (0, 3, 16, 16)


def test_the_fingerprint_tells_pixels_and_order_but_not_labels() -> None:
    images = array()
    assert images.fingerprint() == images.relabel(images.labels + 5).fingerprint()
    assert images.fingerprint() == ArrayImages(images.pixels.copy(), images.labels).fingerprint()
    other = images.pixels.copy()
    other[-1, -1, -1, -1] ^= 1
    kinds = [images, images.subset([1, 0]), images.subset([0, 1]), ArrayImages(other, images.labels)]
    assert len({kind.fingerprint() for kind in kinds}) == len(kinds)


def test_wrong_pixels_and_labels_are_refused() -> None:
    with pytest.raises(InputError, match=r"Images must be uint8 \[n 3 h w\], but are float32 of shape \(2, 3, 4, 4\)"):
        ArrayImages(np.zeros((2, 3, 4, 4), np.float32), torch.zeros(2))
    with pytest.raises(InputError, match="There are 6 images but 5 labels"):
        array().relabel(torch.zeros(5))


def test_a_data_set_has_a_class_for_every_label() -> None:
    with pytest.raises(InputError, match="The test labels of 'toy' run from 0 to 2, but it has 2 classes"):
        Dataset("toy", ("a", "b"), array().subset(array().labels < 2), array())

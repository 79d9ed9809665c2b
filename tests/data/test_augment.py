import json
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.data.augment import Augmentation, augment
from masil.data.colour import cutout, jitter
from masil.data.geometry import flip, pad_crop, random_resized_crop, resize, rotate
from masil.errors import InputError, UnknownNameError

FULL = {"flip": 0.5, "rotation": 10.0, "brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "cutout": 0.25}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=6, side=16):
    return torch.randint(0, 256, (n, 3, side, side), generator=seeded(1), dtype=torch.uint8)


def test_the_order_is_crop_resize_flip_rotation_colour_cutout():
    x, generator = pictures(), seeded(4)
    expected = pad_crop(x.float() / 255, 2, generator)
    expected = flip(resize(expected, 12), generator, 0.5)
    expected = jitter(rotate(expected, 10.0, generator), 0.4, 0.3, 0.2, generator)
    expected = cutout(expected, 0.25, 0.5, generator)
    assert torch.equal(augment(x, Augmentation(crop="pad", pad=2, **FULL), 12, seeded(4)), expected)


def test_a_resized_crop_goes_straight_to_the_size():
    x = pictures()
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
        ({"scale": (0.0, 1.0)}, "share of the area"),
        ({"ratio": (1.0, 0.5)}, "width : height"),
        ({"flip": 2.0}, r"probability of a flip is 2.0, but must lie in \[0, 1\]"),
        ({"rotation": 270.0}, "270.0 degrees"),
        ({"saturation": -0.4}, "jitter of saturation is -0.4"),
        ({"cutout": 8}, "side of a cutout, as a fraction of the image's, is 8"),
        ({"cutout_probability": -0.1}, "probability of a cutout is -0.1"),
    ],
)
def test_values_out_of_range_are_refused_when_they_are_written_down(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        Augmentation(**settings)


def test_a_misspelt_crop_is_suggested():
    with pytest.raises(UnknownNameError, match="no crop called 'resize'; did you mean 'resized'"):
        Augmentation(crop="resize")


def test_padding_is_checked_against_the_images():
    with pytest.raises(InputError, match="Reflection by 4 px needs 0 <= pad < 3"):
        augment(pictures(side=3), Augmentation(crop="pad"), 3, seeded())

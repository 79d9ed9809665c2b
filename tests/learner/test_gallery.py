"""Where concepts are strongest in a gallery."""

import numpy as np
import pytest
import torch
from torch import nn

from masil.backbones import ModuleBackbone
from masil.collapse import LinearMap
from masil.concepts import BankRecord, ConceptBank
from masil.data import ArrayImages, Framing
from masil.errors import InputError
from masil.learner.base import Base
from masil.learner.gallery import nearest_crops

FRAMING = Framing(28, 28)


@pytest.fixture
def eyes():
    """A backbone whose three features are the red, green and blue of each 4 × 4 square."""
    pool = nn.Sequential(nn.AvgPool2d(4), nn.ReLU())
    return ModuleBackbone(pool, FRAMING, name="colours", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


@pytest.fixture
def base():
    bank = ConceptBank(torch.eye(3), BankRecord(3, 0, 1, True, 0.0))
    return Base(1.0, LinearMap(3), bank, None, 1.0, False)


def test_a_crop_is_cut_where_the_concept_is(eyes, base):
    pixels = np.zeros((4, 3, 28, 28), np.uint8)
    pixels[2, 0, 12:16, 20:24] = 255  # red in image 2
    pixels[1, 0, 0:4, 0:4] = 120  # and less of it in a corner of image 1
    pixels[3, 2] = 90  # blue all over image 3
    red, blue = nearest_crops(base, eyes, ArrayImages(pixels, torch.zeros(4)), (0, 2))
    assert [crop.image for crop in red] == ["array[2]", "array[1]"]  # the others have none
    assert red[0].coefficient == pytest.approx(1)
    top, left, side = red[0].box
    assert (side, red[0].pixels.shape) == (8, (3, 8, 8))
    assert (top, left) == (14 - 4, 22 - 4)
    assert int(red[0].pixels[0].max()) == 255
    assert red[1].box == (0, 0, 8)
    assert [crop.image for crop in blue] == ["array[3]"]


def test_no_photo_is_a_sentence(eyes, base):
    with pytest.raises(InputError, match="There are no photos to show concepts in"):
        nearest_crops(base, eyes, ArrayImages(np.zeros((0, 3, 28, 28), np.uint8), torch.zeros(0)), (0,))

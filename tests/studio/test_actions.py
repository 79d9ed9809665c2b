"""Heat maps are clear where it is cold, in one colour where it is warm, and have a line around the hotter half."""

import base64
import io

import numpy as np
import torch
from PIL import Image

from masil.studio.actions import COLOURS, OPAQUE, framed_url, heat_url


def pixels(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,")))))


def test_what_the_model_saw_comes_back_and_heat_is_laid_over_in_one_colour():
    seen = torch.randint(0, 256, (3, 7, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(pixels(framed_url(seen)), seen.permute(1, 2, 0).numpy())
    heat = torch.zeros(12, 12)
    heat[3:9, 3:9] = 4.0
    heat[0, 0], heat[0, 11] = 1.0, -3.0
    found = pixels(heat_url(heat, "#102030"))
    assert found[11, 0, 3] == 0
    assert found[0, 11, 3] == 0
    assert found[0, 0].tolist() == [16, 32, 48, round(OPAQUE / 4)]
    assert found[5, 5].tolist() == [16, 32, 48, OPAQUE]
    assert found[3, 5].tolist() == [255, 255, 255, 255]
    assert (found[..., 3] == 255).sum() == 20  # the rim of 6 × 6
    for none in (torch.zeros(4, 4), -torch.ones(4, 4)):
        assert pixels(heat_url(none, COLOURS[0]))[..., 3].max() == 0

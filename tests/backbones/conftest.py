"""A backbone that is small enough to run in milliseconds, and images for it."""

import numpy as np
import pytest
import torch

from masil.backbones import create
from masil.data import array_images

SIDE = 16


@pytest.fixture
def tiny():
    """Give a function that makes a ResNet-20 of half the width for squares of 16 px."""
    return lambda **options: create("resnet20", **{"width": 0.5, "framing": (SIDE, SIDE), **options})


@pytest.fixture
def images():
    """Give a function that makes n images of noise."""

    def make(n, height=SIDE, width=SIDE, seed=0):
        pixels = np.random.default_rng(seed).integers(0, 256, (n, 3, height, width), dtype=np.uint8)
        return array_images(pixels, torch.arange(n))

    return make


@pytest.fixture
def noise():
    """Give a function that makes pixels uint8 [n 3 h w]."""

    def make(n, height=SIDE, width=None, seed=1):
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, 256, (n, 3, height, width or height), dtype=torch.uint8, generator=generator)

    return make

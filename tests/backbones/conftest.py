"""A backbone that is small enough to run in milliseconds, and images for it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from masil.backbones import Backbone, create
from masil.data import ArrayImages

SIDE = 16


@pytest.fixture
def tiny() -> Callable[..., Backbone]:
    """Give a function that makes a ResNet-20 of half the width for squares of 16 px."""
    return lambda **options: create("resnet20", **{"width": 0.5, "framing": (SIDE, SIDE), **options})


@pytest.fixture
def images() -> Callable[..., ArrayImages]:
    """Give a function that makes n images of noise."""

    def make(n: int, height: int = SIDE, width: int = SIDE, seed: int = 0) -> ArrayImages:
        pixels = np.random.default_rng(seed).integers(0, 256, (n, 3, height, width), dtype=np.uint8)
        return ArrayImages(pixels, torch.arange(n))

    return make


@pytest.fixture
def noise() -> Callable[..., torch.Tensor]:
    """Give a function that makes pixels uint8 [n 3 h w]."""

    def make(n: int, height: int = SIDE, width: int | None = None, seed: int = 1) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, 256, (n, 3, height, width or height), dtype=torch.uint8, generator=generator)

    return make

"""Small classes of activations that concepts can explain (mixtures of a few parts, with noise), and of pictures."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from masil.backbones import Backbone, create
from masil.data import Framing
from masil.learner import Masil


@dataclass
class World:
    """Classes 'c00', 'c01', … of activations [n d]; `draw(classes, n)` gives n images of each."""

    centres: Tensor
    seed: int = 0

    def draw(self, classes: range, n: int, seed: int = 0) -> tuple[Tensor, list[str]]:
        generator = torch.Generator().manual_seed(1000 * self.seed + seed)
        codes = torch.tensor([c for c in classes for _ in range(n)])
        noise = 0.25 * torch.randn(len(codes), self.centres.shape[1], generator=generator)
        return (self.centres[codes] + noise).clamp_min(0), [f"c{c:02}" for c in codes.tolist()]


@pytest.fixture(scope="module", autouse=True)
def _no_probe() -> Iterator[None]:
    """Take the engine most machines have for granted instead of measuring for seconds which is faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASIL_ENGINE", "onnxruntime")
        yield


@pytest.fixture(scope="session")
def world() -> World:
    generator = torch.Generator().manual_seed(7)
    parts = torch.rand(12, 24, generator=generator) * (torch.rand(12, 24, generator=generator) < 0.4)
    return World(torch.rand(20, 12, generator=generator).pow(3) @ parts)


@pytest.fixture(scope="session")
def fitted(world: World) -> Masil:
    """Ten base classes of twelve images; not to be changed, see `model`."""
    return Masil(backbone=None, concepts=8).fit(*world.draw(range(10), 12))


@pytest.fixture
def model(fitted: Masil) -> Masil:
    """A learner of its own that knows the ten base classes: whatever a learner learns is replaced, never changed."""
    return copy(fitted)


@pytest.fixture
def make() -> Callable[..., Masil]:
    return lambda **params: Masil(backbone=None, **{"concepts": 8, **params})


@pytest.fixture(scope="session")
def backbone() -> Backbone:
    return create("resnet20", seed=1, framing=Framing(32, 32))


@pytest.fixture(scope="session")
def pictures() -> Callable[..., tuple[np.ndarray, list[str]]]:
    """Give n pictures uint8 [n 32 32 3] of each class, a pattern of its own under noise, and their names."""

    def make(classes: range, n: int, seed: int = 0) -> tuple[np.ndarray, list[str]]:
        patterns = np.random.default_rng(99).integers(0, 255, (8, 4, 4, 3)).repeat(8, 1).repeat(8, 2)
        labels = [c for c in classes for _ in range(n)]
        noisy = patterns[labels] + np.random.default_rng(seed).normal(0, 30, (len(labels), 32, 32, 3))
        return noisy.clip(0, 255).astype(np.uint8), [f"k{label}" for label in labels]

    return make

"""Small classes of activations that concepts can explain: mixtures of a few parts, with noise."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

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

"""A benchmark of eight coloured squares, with a backbone that is the pixels themselves."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from masil.backbones import create
from masil.benchmark import Setting
from masil.data import Dataset, Framing, array_images
from masil.hardware import Hardware, remember
from masil.protocol import Protocol

SHAPE = Protocol("small", "squares", base_classes=4, sessions=2, way=2, shot=3)


def squares(train=6, test=4, classes=8):
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (classes, 3, 4, 4))

    def part(each):
        labels = torch.arange(classes).repeat(each)
        pixels = colours[labels] + generator.integers(-20, 21, (len(labels), 3, 4, 4))
        return array_images(pixels.clip(0, 255).astype(np.uint8), labels)

    return Dataset("squares", tuple("abcdefgh"), part(train), part(test))


class Shelf:
    """Stands in for the store: activations are pixels in [0, 1]. Notes how many images were asked for."""

    def __init__(self):
        self.asked: list[int] = []

    def get(self, backbone, images, *, view, device="auto"):
        self.asked.append(len(images))
        pixels = images.load(slice(None), Framing(4, 4))
        return (pixels.flip(3) if view.mirrored else pixels).flatten(1) / 255


@pytest.fixture(autouse=True)
def _known_machine(tmp_path, monkeypatch):
    """Spare the tests the hardware's trials: the answer is known."""
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path / "cache"))
    remember(Hardware("cpu", {"cpu": "float32"}))


@pytest.fixture
def setting():
    return Setting(SHAPE, squares(), create("resnet20", width=0.5), "none", device="cpu", store=Shelf())  # type: ignore[arg-type]


@pytest.fixture
def with_standard_shots(setting):
    shots = {1: torch.tensor([4, 12, 20, 5, 13, 21]), 2: torch.tensor([6, 14, 22, 7, 15, 23])}
    return replace(setting, dataset=replace(setting.dataset, shots=shots))


@pytest.fixture
def patterns():
    """Six classes of coarse patterns on which a network can be trained, and their protocol."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 12)
    coarse = random.integers(0, 200, (6, 3, 4, 4)).repeat(4, 2).repeat(4, 3)
    pixels = np.clip(coarse[labels] + random.integers(-20, 20, (72, 3, 16, 16)), 0, 255).astype(np.uint8)
    images = array_images(pixels, torch.from_numpy(labels))
    shape = Protocol("patterns", "patterns", base_classes=4, way=1, shot=3, sessions=2)
    return shape, Dataset("patterns", tuple("abcdef"), images, images)

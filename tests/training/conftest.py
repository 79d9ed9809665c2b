"""Small synthetic classes: a coloured pattern each, under noise that a mean over pixels does not remove."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from masil.data import Augmentation, array_images
from masil.training import Monitoring, MuonSettings, Recipe, Sgd


@pytest.fixture
def patterns():
    def make(classes=4, per_class=24, side=16, seed=0):
        draw = np.random.default_rng(seed)
        coarse = draw.integers(0, 255, (classes, 3, 4, 4)).repeat(side // 4, 2).repeat(side // 4, 3)
        labels = np.arange(classes * per_class) % classes
        noisy = coarse[labels] + draw.normal(0, 50, (len(labels), 3, side, side))
        return array_images(noisy.clip(0, 255).astype(np.uint8), torch.from_numpy(labels))

    return make


@pytest.fixture
def tiny():
    def make(**changes):
        settings: dict[str, object] = {
            "name": "tiny",
            "stages": ((2, 8), (2, 16)),
            "backbone": "resnet20",
            "width": 0.5,
            "framing": (16, 16),
            "batch": 16,
            "sgd": Sgd(lr=0.05),
            "muon": MuonSettings(lr=0.05),
            "augmentation": Augmentation(crop="pad", pad=2, flip=0.5),
            "watch": Monitoring(nc_every=2, nc_images=4),
        }
        return Recipe(**{**settings, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def command(tmp_path):
    """Make the command that trains `recipe` on `images` in a process of its own, with as many threads as this one."""

    def make(images, recipe, *arguments):
        np.save(tmp_path / "pixels.npy", images.source.pixels)
        np.save(tmp_path / "labels.npy", images.labels.numpy())
        (tmp_path / "recipe.json").write_text(json.dumps(recipe.to_json()))
        return [str(Path(__file__).parent / "run_session.py"), str(tmp_path), *map(str, arguments)]

    return make


@pytest.fixture
def environment():
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}

from pathlib import Path

import numpy as np
import pytest
import torch

from masil.benchmark import bench, prepare
from masil.data import ArrayImages, Dataset
from masil.protocol import Protocol
from masil.training import MuonSettings, Recipe, Watch

OWN = ["nc-fscil", "learnable-ce", "d-negcosine", "alice", "fact", "icarl"]


def test_a_grid_with_a_recipe_trains_each_in_its_own_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(0)
    patterns = random.integers(0, 200, (6, 3, 8, 8))
    labels = np.repeat(np.arange(6), 12)
    pixels = np.clip(patterns[labels] + random.integers(-20, 20, (72, 3, 8, 8)), 0, 255).astype(np.uint8)
    images = ArrayImages(pixels, torch.from_numpy(labels))
    dataset = Dataset("patterns", tuple("abcdef"), images, images)
    shape = Protocol("patterns", "patterns", base_classes=4, way=1, shot=3, sessions=2)
    usual = Recipe(
        "patterns", ((2, 8),), backbone="resnet20", width=0.25, framing=(8, 8), batch=16, compile=False,
        muon=MuonSettings(lr=0.02), watch=Watch(nc_every=0),
    )  # fmt: skip
    setting = prepare(shape, dataset=dataset, recipe=usual, folder=tmp_path / "base", device="cpu")
    records = bench(setting, ["d-cosine", *OWN], 1, out=tmp_path / "out", recipe=usual, workers=1).runs
    assert {record.method: record.recipe for record in records} == {
        "d-cosine": "patterns",
        **{name: f"patterns+{name}" for name in OWN},
    }
    assert len({record.weights for record in records}) == 1 + len(OWN)
    again = prepare(shape, dataset=dataset, checkpoint=tmp_path / "out" / "base-alice", device="cpu")
    assert again.trained_for == "alice"
    (shared,) = bench(setting, ["alice"], 1, out=tmp_path / "shared", workers=1).runs
    assert shared.recipe == "patterns"
    assert "'alice' trains a base session of its own, but has the shared backbone here" in caplog.text

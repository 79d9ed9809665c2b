"""The base sessions that come with the repository: they load, fit their protocols, and are small."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from masil.backbones import extract
from masil.data import load
from masil.protocol import PROTOCOLS, sessions
from masil.training import RECIPES, load_trained

FOLDER = Path(__file__).parents[1] / "weights"
pytestmark = pytest.mark.skipif(
    (FOLDER.parent / "PKG-INFO").exists() and not FOLDER.exists(),
    reason="needs weights/, which the source distribution leaves out",
)
NAMES = {
    "cifar100": "resnet18_cifar",
    "cifar100-half": "resnet18_cifar",
    "cub200": "efficientnet_lite0",
    "cub200-two": "efficientnet_lite0+efficientnet_lite2",
}


@pytest.mark.parametrize("folder", NAMES)
def test_a_base_session_is_ready_to_use(folder: str) -> None:
    trained = load_trained(FOLDER / folder)
    assert trained.backbone.name == NAMES[folder]
    assert len(trained.class_vectors) == PROTOCOLS[folder.partition("-")[0]].base_classes
    assert len(trained.history) == trained.recipe.epochs
    assert trained.recipe.name.partition(" ")[0] in RECIPES  # what was set otherwise follows
    side = trained.backbone.framing.crop
    pixels = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        activations = trained.backbone(trained.backbone.preprocess(pixels))
    assert activations.shape == (2, trained.class_vectors.shape[1])
    assert bool((activations >= 0).all())
    assert bool(activations.isfinite().all())


def test_collapse_was_measured_and_grew() -> None:
    rows = [row for row in load_trained(FOLDER / "cifar100").history if "nc1" in row]
    assert len(rows) > 5
    assert rows[-1]["nc1"] < rows[0]["nc1"] / 3
    assert rows[-1]["nc4"] > 0.9


def test_all_weights_together_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 60_000_000


@pytest.mark.data
def test_base_images_never_seen_are_recognised(data_folder: str) -> None:
    trained = load_trained(FOLDER / "cifar100")
    test = next(sessions(PROTOCOLS["cifar100"], load("cifar100", data_folder))).test
    few = test.subset(slice(None, None, 12))  # 500
    cosines = functional.normalize(extract(trained.backbone, few)) @ functional.normalize(trained.class_vectors).T
    assert float((cosines.argmax(1) == few.labels).float().mean()) > 0.75

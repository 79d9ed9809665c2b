from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone, create
from masil.data import array_images
from masil.methods import Samples, Task
from masil.methods.stage import StageNetwork
from masil.protocol import Protocol

MakeTask = Callable[..., Task]


@pytest.fixture
def task() -> MakeTask:
    """Make a task of `base` classes and one session of `new` ones."""

    def make(base: int = 4, new: int = 2, **told: object) -> Task:
        return Task(Protocol("rows", "rows", base_classes=base, sessions=1, way=new, shot=5), **told)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """Make a small ResNet for images of 16 px."""
    return create("resnet20", weights=None, width=0.5, framing=(16, 16)).eval()


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: Backbone):
    """Give images of coloured patterns, a class each, as samples of a backbone."""
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    patterns = np.random.default_rng(0).integers(0, 200, (7, 3, 16, 16))

    def make_samples(classes: range, each: int, seed: int) -> Samples:
        labels = torch.tensor(classes).repeat(each)
        noise = np.random.default_rng(seed).integers(0, 50, (len(labels), 3, 16, 16))
        shown = array_images((patterns[labels] + noise).astype(np.uint8), labels)
        return Samples(ActivationStore().get(backbone, shown, device="cpu"), shown, labels=labels)

    return make_samples


PATTERNS = np.random.default_rng(0).integers(0, 200, (7, 3, 4, 4)).repeat(4, 2).repeat(4, 3)  # a class each


def patterned(labels: Tensor, seed: int) -> np.ndarray:
    """Make noisy images of coloured patterns, uint8 [n 3 16 16]."""
    noise = np.random.default_rng(seed).integers(0, 50, (len(labels), 3, 16, 16))
    return (PATTERNS[labels] + noise).astype(np.uint8)


@pytest.fixture(scope="session")
def trained_backbone() -> Backbone:
    """Train a small ResNet to tell the first five patterns from one another, wherever they are shifted to."""
    network = create("resnet20", weights=None, width=0.5, framing=(16, 16)).train().requires_grad_(True)
    labels = torch.arange(5).repeat(12)
    pixels = network.preprocess(torch.from_numpy(patterned(labels, 0)))
    rows = torch.randn(5, network.features, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimiser = torch.optim.Adam([*network.parameters(), rows], 0.01)
    for step in range(30):
        z = functional.normalize(network(pixels.roll((step % 5 - 2, step % 3 - 1), (2, 3))))
        optimiser.zero_grad()
        functional.cross_entropy(16 * z @ functional.normalize(rows).T, labels).backward()
        optimiser.step()
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean of what follows: the statistics of the network as it is now
    with torch.no_grad():
        network(pixels)
    return network.eval().requires_grad_(False)


@pytest.fixture
def trained_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained_backbone: Backbone
) -> Callable[[range, int, int], Samples]:
    """Give images of patterns, so many of each class, as samples of the backbone."""
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))

    def make_samples(classes: range, each: int, seed: int) -> Samples:
        labels = torch.tensor(classes).repeat(each)
        shown = array_images(patterned(labels, seed), labels)
        return Samples(ActivationStore().get(trained_backbone, shown, device="cpu"), shown, labels=labels)

    return make_samples


@pytest.fixture
def assert_only_the_last_stage_moved() -> Callable[[StageNetwork, StageNetwork], None]:
    """Compare a network with what it was: what comes before its last stage is the same, and so are the statistics."""

    def check(start: StageNetwork, net: StageNetwork) -> None:
        lower = zip(start.lower.state_dict().values(), net.lower.state_dict().values(), strict=True)
        assert all(torch.equal(old, new) for old, new in lower)
        after = net.stage.state_dict()
        moved = {name for name, value in start.stage.state_dict().items() if not torch.equal(value, after[name])}
        assert any("conv1" in name for name in moved)
        assert not any("running" in name for name in moved)

    return check

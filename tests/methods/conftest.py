import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone, create
from masil.data import array_images
from masil.methods import Samples, Task
from masil.protocol import Protocol

MakeTask = Callable[..., Task]


@pytest.fixture
def task() -> MakeTask:
    """Make a task of `base` classes and one session of `new` ones."""

    def make(base: int = 4, new: int = 2, **told: object) -> Task:
        return Task(Protocol("rows", "rows", base_classes=base, sessions=1, way=new, shot=5), **told)  # type: ignore[arg-type]

    return make


@pytest.fixture
def peaks() -> Callable[..., Samples]:
    """Make activations in which every class has a feature of its own, so many rows of each class."""

    def make_samples(classes: range, each: int, seed: int | None = None) -> Samples:
        labels = torch.tensor(classes).repeat(each)
        generator = torch.Generator().manual_seed(classes.start if seed is None else seed)
        return Samples(torch.rand(len(labels), 16, generator=generator) + 2 * torch.eye(16)[labels], labels=labels)

    return make_samples


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """Make a small ResNet for images of 16 px."""
    return create("resnet20", weights=None, width=0.5, framing=(16, 16)).eval()


FINE = np.random.default_rng(0).integers(0, 200, (7, 3, 16, 16))  # a pattern for each class
COARSE = np.random.default_rng(0).integers(0, 200, (7, 3, 4, 4)).repeat(4, 2).repeat(4, 3)


def noisy(patterns: np.ndarray, labels: Tensor, seed: int) -> np.ndarray:
    """Make noisy images of coloured patterns, uint8 [n 3 16 16]."""
    noise = np.random.default_rng(seed).integers(0, 50, (len(labels), 3, 16, 16))
    return (patterns[labels] + noise).astype(np.uint8)


def samples_of(patterns: np.ndarray, backbone: Backbone) -> Callable[[range, int, int], Samples]:
    """Make samples of patterns, so many of each class, with the activations of a backbone."""

    def make_samples(classes: range, each: int, seed: int) -> Samples:
        labels = torch.tensor(classes).repeat(each)
        shown = array_images(noisy(patterns, labels, seed), labels)
        return Samples(ActivationStore().get(backbone, shown, device="cpu"), shown, labels=labels)

    return make_samples


@pytest.fixture
def images(backbone: Backbone) -> Callable[[range, int, int], Samples]:
    """Make samples of a backbone that knows nothing."""
    return samples_of(FINE, backbone)


@pytest.fixture
def trained_images(trained_backbone: Backbone) -> Callable[[range, int, int], Samples]:
    """Make samples of the trained backbone."""
    return samples_of(COARSE, trained_backbone)


@pytest.fixture(scope="session")
def trained_backbone() -> Backbone:
    """Train a small ResNet to tell the first five patterns from one another, wherever they are shifted to."""
    network = create("resnet20", weights=None, width=0.5, framing=(16, 16)).train().requires_grad_(True)
    labels = torch.arange(5).repeat(12)
    pixels = network.preprocess(torch.from_numpy(noisy(COARSE, labels, 0)))
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
def weights_move() -> Callable[[nn.Module], AbstractContextManager[None]]:
    """Check that in a block of code the weights of a module's convolutions move, and the statistics of norms do not."""

    @contextmanager
    def watch(module: nn.Module) -> Iterator[None]:
        before = copy.deepcopy(module.state_dict())
        yield
        moved = {name for name, value in module.state_dict().items() if not torch.equal(value, before[name])}
        assert {name for name in before if "conv" in name} <= moved
        assert not any("running" in name for name in moved)

    return watch

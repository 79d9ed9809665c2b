"""Methods that train the network in a session: what is frozen, what moves, and what holds for all of them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from masil.backbones import ActivationStore, Backbone, create
from masil.data import ArrayImages
from masil.errors import InputError
from masil.methods import METHODS, Checked, Keeps, Samples, Task, make
from masil.methods.network import LastBlock, UpToLastBlock

BASE, NEW, SIDE = 5, 2, 16
NETWORKS = [name for name, method in METHODS.items() if method.sees == "images"]


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return create("resnet20", weights=None, width=0.5, framing=(SIDE, SIDE)).eval()


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: Backbone):
    """Give images of coloured patterns, a class each, as samples of a backbone."""
    monkeypatch.setenv("MASIL_CACHE", str(tmp_path))
    patterns = np.random.default_rng(0).integers(0, 200, (BASE + NEW, 3, SIDE, SIDE))

    def make_samples(classes: range, each: int, seed: int) -> Samples:
        labels = torch.tensor(classes).repeat(each)
        noise = np.random.default_rng(seed).integers(0, 50, (len(labels), 3, SIDE, SIDE))
        shown = ArrayImages((patterns[labels] + noise).astype(np.uint8), labels)
        return Samples(ActivationStore().get(backbone, shown, device="cpu"), shown, labels=labels)

    return make_samples


def test_the_two_parts_are_the_whole_network(backbone: Backbone) -> None:
    frozen = UpToLastBlock(backbone)
    x = backbone.preprocess(torch.randint(256, (6, 3, SIDE, SIDE), dtype=torch.uint8))
    with torch.no_grad():
        rows = frozen(x)
        assert rows.shape == (6, frozen.features)
        torch.testing.assert_close(LastBlock(backbone, frozen.shape)(rows), backbone(x))
    assert frozen.fingerprint() != backbone.fingerprint()


def test_a_backbone_without_residual_blocks_is_refused() -> None:
    with pytest.raises(InputError, match="'efficientnet_lite0' has no residual blocks of which a session could train"):
        UpToLastBlock(create("efficientnet_lite0", weights=None))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.usefixtures("one_thread")
def test_sessions_are_learnt_and_the_shared_backbone_is_left_alone(name: str, images, task, backbone: Backbone) -> None:
    before = backbone.fingerprint()
    answers = []
    for _ in range(2):
        method = Checked(make(name))
        told: Task = task(BASE, NEW, backbone=backbone)
        method.fit(images(range(BASE), 8, 1), told)
        method.learn(images(range(BASE, BASE + NEW), 5, 2))
        tests = images(range(BASE + NEW), 6, 3)
        answers.append(method.predict(tests))
    assert torch.equal(*answers)
    assert float((answers[0] == tests.labels).float().mean()) > 0.8
    assert backbone.fingerprint() == before


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_alone_are_refused(name: str, images, task, backbone: Backbone) -> None:
    base = images(range(BASE), 2, 1)
    with pytest.raises(InputError, match="trains on images, but was given activations alone"):
        Checked(make(name)).fit(Samples(base.activations, labels=base.labels), task(BASE, backbone=backbone))


def test_icarl_trains_the_last_block_and_keeps_as_many_images_as_it_says(images, task, backbone: Backbone) -> None:
    method = make("icarl-network", base_exemplars=10, each=1)
    method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
    start = {name: value.clone() for name, value in method.block.state_dict().items()}
    method.learn(images(range(BASE, BASE + NEW), 5, 2))
    after = method.block.state_dict()
    moved = {name for name in start if not torch.equal(start[name], after[name])}
    assert {"block.conv1.weight", "block.conv2.weight"} <= moved
    assert not any("running" in name for name in moved)  # the statistics of the batch norms
    assert torch.bincount(method.kept_labels).tolist() == [2] * BASE + [1] * NEW
    assert Keeps.EXEMPLARS in method.keeps

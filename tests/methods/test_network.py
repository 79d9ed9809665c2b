"""Methods that train the network in a session: what is frozen, what moves, and what holds for all of them."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from masil.backbones import Backbone, create
from masil.errors import InputError
from masil.methods import METHODS, Checked, Keeps, Samples, Task, make
from masil.methods.cuts import UpToLastBlock, averages
from masil.methods.network import LastBlock

BASE, NEW, SIDE = 5, 2, 16
SMALLER: dict[str, dict[str, Any]] = {
    "metafscil": {"sequences": 3},
    "deepinv": {"rounds": 10, "each": 8},
    "data-free-replay": {"rounds": 20, "batch": 16},
}
NETWORKS = [
    name for name, method in METHODS.items() if method.sees == "images" and not name.endswith("as-written")
]  # these need a base session of their own: test_masil_paper.py
OF_TRAINED = ("mgsvf", "deepinv", "data-free-replay")  # they tune or invert a network, which must know something


def test_the_two_parts_are_the_whole_network(backbone: Backbone) -> None:
    frozen = UpToLastBlock(backbone)
    x = backbone.preprocess(torch.randint(256, (6, 3, SIDE, SIDE), dtype=torch.uint8))
    with torch.no_grad():
        rows = frozen(x)
        assert rows.shape == (6, frozen.features)
        torch.testing.assert_close(LastBlock(backbone, frozen.shape)(rows), backbone(x))
    assert frozen.fingerprint() != backbone.fingerprint()


@pytest.mark.parametrize(("places", "most"), [(4, 3), (7, 3), (2, 3), (6, 3), (1, 1)])
def test_maps_are_averaged_as_adaptive_pooling_does(places: int, most: int) -> None:
    line = torch.rand(5, places, generator=torch.Generator().manual_seed(0))
    pooled = functional.adaptive_avg_pool1d(line, min(places, most))
    torch.testing.assert_close(line @ averages(places, most).T, pooled)


def test_a_backbone_without_residual_blocks_is_refused() -> None:
    both = create("efficientnet_lite0+efficientnet_lite2", weights=None)
    with pytest.raises(InputError, match=r"'efficientnet_lite0\+efficientnet_lite2' has no residual blocks of which a"):
        UpToLastBlock(both)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.usefixtures("one_thread")
def test_sessions_are_learnt_and_the_shared_backbone_is_left_alone(name: str, task, request) -> None:
    kind = "trained_" if name in OF_TRAINED else ""
    images, backbone = (request.getfixturevalue(f"{kind}{fixture}") for fixture in ("images", "backbone"))
    before = backbone.fingerprint()
    answers = []
    for _ in range(2):
        method = Checked(make(name, **SMALLER.get(name, {})))
        told: Task = task(BASE, NEW, backbone=backbone)
        method.fit(images(range(BASE), 8, 1), told)
        method.learn(images(range(BASE, BASE + NEW), 5, 2))
        tests = images(range(BASE + NEW), 6, 3)
        answers.append(method.predict(tests))
    assert torch.equal(*answers)
    if name.endswith("-table"):  # what the tables show: old images are taken for new ones
        assert float((answers[0] == tests.labels)[tests.labels < BASE].float().mean()) < 0.5
    else:
        assert float((answers[0] == tests.labels).float().mean()) > 0.8
    assert backbone.fingerprint() == before


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.sees == "images"])
def test_activations_alone_are_refused(name: str, task) -> None:
    said = f"'{name}' trains on images or crops of them, but was given stored activations alone, of which nothing can"
    with pytest.raises(InputError, match=said):
        Checked(make(name)).fit(Samples(torch.rand(4, 8), labels=torch.arange(4)), task())


@pytest.mark.parametrize("name", ["icarl-table", "eeil-table", "lucir-table"])
def test_as_in_the_tables_the_last_block_is_trained_and_base_images_are_all_that_is_kept(
    name: str, images, task, backbone: Backbone, weights_move
) -> None:
    method = make(name, base_exemplars=10)
    method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
    rows, kept = method.rows, method.kept
    assert torch.bincount(method.kept_labels).tolist() == [2] * BASE
    with weights_move(method.block):
        method.learn(images(range(BASE, BASE + NEW), 5, 2))
    assert torch.equal(method.kept, kept)
    assert torch.equal(method.rows[:BASE], rows) == (name == "lucir-table")
    assert len(method.rows) == BASE + NEW
    assert Keeps.EXEMPLARS in method.keeps


def test_what_holds_kept_images_is_at_its_minimum_before_a_session() -> None:
    generator = torch.Generator().manual_seed(0)
    z = functional.normalize(torch.randn(9, 4, generator=generator))
    old = torch.randn(3, 4, generator=generator)
    for name in ("icarl-table", "lucir-table"):
        moving, rows = z.clone().requires_grad_(), old.clone().requires_grad_()
        make(name).hold(z, moving, rows, old).backward()
        along = moving.grad - (moving.grad * z).sum(1, keepdim=True) * z  # unit vectors can only turn
        assert float(along.norm()) < 1e-5
        assert rows.grad is None or float(rows.grad.norm()) < 1e-5

"""Methods that train the network in a session: what is frozen, what moves, and what holds for all of them."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone, create
from masil.data import Images
from masil.errors import InputError
from masil.methods import METHODS, Checked, Keeps, Samples, Task, make
from masil.methods.cuts import UpToLastBlock, averages, last_blocks
from masil.methods.network import FrozenPart, LastBlock, fastest_type
from masil.methods.stage import StageNetwork

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


@pytest.mark.parametrize("stage", [False, True])
@pytest.mark.parametrize(("name", "width"), [("resnet20", 0.5), ("resnet12", 0.125), ("efficientnet_lite0", 0.25)])
def test_the_two_parts_are_the_whole_network(name: str, width: float, stage: bool) -> None:
    backbone = create(name, weights=None, width=width, framing=(SIDE, SIDE)).eval()
    frozen = UpToLastBlock(backbone, stage=stage)
    block = LastBlock(backbone, frozen.shape, stage=stage)
    x = backbone.preprocess(torch.randint(256, (6, 3, SIDE, SIDE), dtype=torch.uint8))
    with torch.no_grad():
        rows = frozen(x)
        assert rows.shape == (6, frozen.features)
        torch.testing.assert_close(block(rows), backbone(x))
        assert block.equals(backbone, stage=stage)
        next(block.parameters()).mul_(2)
        assert not block.equals(backbone, stage=stage)
    assert frozen.fingerprint() != backbone.fingerprint()


def test_the_last_stage_begins_where_maps_are_halved_for_the_last_time() -> None:
    lite = create("efficientnet_lite0", weights=None, width=0.25)
    assert len(last_blocks(lite, stage=True)) == 5  # four of 192 channels and one of 320, which the head belongs to
    (last,) = last_blocks(lite)
    assert {id(weight) for weight in last.parameters()} >= {id(weight) for weight in lite.conv_head.parameters()}


class Counter:
    """A store that notes how many images it is asked for."""

    def __init__(self) -> None:
        self.store, self.asked = ActivationStore(), []

    def get(self, network: Backbone, images: Images, device: str) -> Tensor:
        self.asked.append(len(images))
        return self.store.get(network, images, device=device)


def test_an_image_is_run_once_however_often_and_in_whatever_order_it_is_asked_for(images, backbone: Backbone) -> None:
    shown = images(range(BASE), 8, 1).shown
    part, expected = FrozenPart(backbone, "cpu"), FrozenPart(backbone, "cpu")(shown)
    part.store = Counter()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for rows in (torch.arange(10), torch.arange(25), order[:30], order, torch.tensor([3, 3, 39]), torch.arange(10)):
        torch.testing.assert_close(part(shown.subset(rows)), expected[rows])
    assert sum(part.store.asked) == len(shown)
    again = copy.deepcopy(part)  # as for the next draw of the shots
    torch.testing.assert_close(again(shown), expected)
    assert sum(part.store.asked) == len(shown)
    others = images(range(BASE), 8, 2).shown  # of another source, with the same numbers
    torch.testing.assert_close(part(others), FrozenPart(backbone, "cpu")(others))
    assert part(shown.subset([])).shape == (0, expected.shape[1])


def test_features_are_the_activations_until_the_block_is_trained(images, task, backbone: Backbone) -> None:
    method = make("idlvq")
    base = images(range(BASE), 8, 1)
    method.fit(base, task(BASE, NEW, backbone=backbone))
    assert torch.equal(method.features_now(base), base.activations)
    torch.testing.assert_close(method.block.run(method.entering(base)), base.activations, atol=1e-4, rtol=1e-3)
    with torch.no_grad():
        method.block.block.conv1.weight.mul_(0.5)
    assert torch.equal(method.features_now(base), method.block.run(method.entering(base)))
    assert not torch.allclose(method.features_now(base), base.activations, rtol=0.01)


def test_a_last_stage_in_bfloat16_answers_in_float32_and_trains_float32_weights(images, backbone: Backbone) -> None:
    base = images(range(BASE), 8, 1)
    rows = torch.randn(BASE, backbone.features, generator=torch.Generator().manual_seed(0))
    exact, short = (StageNetwork(backbone, rows, 16.0, "cpu", cast) for cast in (None, torch.bfloat16))
    logits = [net.logits(net.entering(base.shown)).detach() for net in (exact, short)]
    assert not torch.equal(*logits)
    assert float((logits[0] - logits[1]).abs().max()) < 0.05 * 16  # cosines; bfloat16 rounds at 2⁻⁹, a few times
    for net in (exact, short):
        with torch.no_grad():
            next(net.stage.parameters()).mul_(1.1)
    assert torch.equal(exact.scores(base), short.scores(base))
    assert {weight.dtype for weight in short.stage.parameters()} == {torch.float32}
    assert fastest_type("cpu") is None


@pytest.mark.usefixtures("one_thread")
def test_a_block_in_bfloat16_answers_in_float32_and_is_compared_with_itself(images, backbone: Backbone) -> None:
    frozen = FrozenPart(backbone, "cpu")
    rows = frozen(images(range(BASE), 8, 1).shown)
    exact, short = (LastBlock(backbone, frozen.network.shape) for _ in range(2))
    short.cast = torch.bfloat16
    assert torch.equal(exact.run(rows), short.run(rows))
    trained = short(rows)
    torch.testing.assert_close(short.run(rows, as_trained=True), trained.detach())
    assert not torch.equal(trained, exact(rows))
    # A few roundings of 2⁻⁹ each, at two convolutions and their norms.
    assert float((trained - exact(rows)).detach().norm()) < 0.03 * float(exact(rows).detach().norm())
    trained.sum().backward()
    assert {weight.grad.dtype for weight in short.parameters()} == {torch.float32}
    assert short.cast is torch.bfloat16


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.usefixtures("one_thread")
def test_no_image_of_the_base_session_is_looked_at_in_a_session(
    name: str, task, request, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "trained_" if name in OF_TRAINED else ""
    images, backbone = (request.getfixturevalue(f"{kind}{fixture}") for fixture in ("images", "backbone"))
    base, method = images(range(BASE), 8, 1), make(name, **SMALLER.get(name, {}))
    method.fit(base, task(BASE, NEW, backbone=backbone))
    call = FrozenPart.__call__

    def watched(part: FrozenPart, shown: Images) -> Tensor:
        assert shown.source is not base.shown.source
        return call(part, shown)

    monkeypatch.setattr(FrozenPart, "__call__", watched)
    monkeypatch.setattr(base.shown.source, "load", None)
    method.learn(images(range(BASE, BASE + NEW), 5, 2))
    assert len(method.predict(images(range(BASE + NEW), 2, 3))) == 2 * (BASE + NEW)


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
    said = f"'{name}' trains on images, on crops or on maps of them, but was given stored activations alone, of which"
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

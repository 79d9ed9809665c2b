import math

import pytest
import torch
from torch.nn import functional

from masil.backbones import Backbone
from masil.methods import make
from masil.methods.topic import LIFETIME, RATE, REACH, NeuralGas, TopicLoss, decay_at, lacking_margin, node_images

BASE, NEW = 5, 2


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_node_of_rank_i_moves_by_its_share_of_the_way() -> None:
    rows = torch.randn(9, 4, generator=seeded())
    gas = NeuralGas.start(rows, 6, seeded())
    before, row = gas.nodes.clone(), torch.randn(4, generator=seeded(1))
    ranks = (before - row).norm(dim=1).argsort().argsort()
    gas.step(row)
    for node, rank in enumerate(ranks.tolist()):
        expected = before[node] + RATE * math.exp(-rank / REACH) * (row - before[node])
        torch.testing.assert_close(gas.nodes[node], expected)


def test_links_join_what_is_near_and_are_cut_when_old() -> None:
    labels = torch.arange(2).repeat(100)
    rows = torch.randn(200, 3, generator=seeded()) + 50 * labels[:, None]
    gas = NeuralGas.start(rows, 20, seeded())
    for row in rows:
        gas.step(row)
    cloud = gas.nodes.mean(1) > 25
    linked = gas.ages >= 0
    assert torch.equal(linked, linked.T)
    assert bool(linked.any())
    assert not bool((linked & (cloud[:, None] != cloud)).any())
    assert int(gas.near(rows[0])[0]) in cloud.logical_not().nonzero()[:, 0].tolist()

    gas = NeuralGas(
        torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[-1, 0, LIFETIME], [0, -1, -1], [LIFETIME, -1, -1]])
    )
    gas.step(torch.tensor([0.1]))
    assert gas.ages.tolist() == [[-1, 0, -1], [0, -1, -1], [-1, -1, -1]]


def test_added_nodes_are_linked_with_none_and_leave_the_others_as_they_are() -> None:
    gas = NeuralGas(torch.tensor([[0.0], [1.0]]), torch.tensor([[-1, 3], [3, -1]]))
    gas.add(torch.tensor([[5.0]]))
    assert gas.nodes.tolist() == [[0.0], [1.0], [5.0]]
    assert gas.ages.tolist() == [[-1, 3, -1], [3, -1, -1], [-1, -1, -1]]
    assert gas.near(torch.tensor([4.0])).tolist() == [2]


@pytest.mark.parametrize(("epochs", "published"), [(70, 60), (100, 90), (120, 110)])
def test_rates_fall_when_the_released_scripts_say(epochs: int, published: int) -> None:
    assert decay_at(epochs) == published
    assert 0 < decay_at(7) < 7


def test_a_node_shows_the_nearest_image_of_the_class_it_wins_most_of() -> None:
    rows = torch.tensor([[0.0], [0.4], [0.5], [9.0], [30.0]])
    chosen = node_images(torch.tensor([[0.1], [9.1], [100.0]]), rows, torch.tensor([7, 1, 1, 3, 3]))
    assert chosen.tolist() == [1, 3]  # the third node wins nothing


def test_the_margin_counts_what_is_lacking_alone() -> None:
    nodes = torch.tensor([[0.0], [0.2]])
    assert float(lacking_margin(nodes, [torch.tensor([[-0.4]]), torch.tensor([[5.0]])])) == torch.tensor(0.3 + 0.1)


def test_the_loss_is_cross_entropy_of_products_with_unit_activations() -> None:
    loss = TopicLoss().build(6, 4, seeded())
    loss.vectors.data *= 3
    activations, labels = torch.rand(5, 6, generator=seeded(1)), torch.tensor([0, 3, 2, 1, 0])
    expected = functional.cross_entropy(functional.normalize(activations) @ loss.vectors.T, labels)
    torch.testing.assert_close(loss(activations, labels, labels, torch.ones(5)), expected)


def test_a_session_moves_the_last_block_alone_and_anchors_hold_it(
    images, task, backbone: Backbone, weights_move
) -> None:
    moved = {}
    for anchor in (0.0, 350.0):
        method = make("topic", anchor=anchor, epochs=10, lr=1e-3)
        method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
        rows, anchors, nodes = method.rows.clone(), method.anchors.clone(), len(method.gas.nodes)
        before = method.unit_features(anchors)
        with weights_move(method.block):
            method.learn(images(range(BASE, BASE + NEW), 5, 2))
        assert torch.equal(method.rows[:BASE], rows)
        assert torch.equal(method.anchors, anchors)
        assert len(method.rows) == BASE + NEW
        assert len(method.gas.nodes) == nodes + NEW  # one of each new class
        moved[anchor] = float((method.unit_features(anchors) - before).norm())
    assert 0 < moved[350.0] < moved[0.0]


def test_anchors_ask_for_nothing_at_first_and_for_something_once_the_block_has_moved(
    images, task, backbone: Backbone
) -> None:
    method = make("topic", row_lr=0.1)
    method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
    before = method.unit_features(method.anchors)
    weights = [*method.block.requires_grad_(True).parameters()]
    loss = method.change_of_anchors(before)
    slopes = torch.autograd.grad(loss, weights)
    # Features are compared as they come out of the same block, run whole and in chunks: a rounding apart.
    assert float(loss.detach()) < 1e-10
    with torch.no_grad():
        method.block.block.conv2.weight.mul_(0.5)
    moved = method.change_of_anchors(before)
    assert float(moved.detach()) > 1e-6
    steeper = torch.autograd.grad(moved, weights)
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-2 * max(float(s.abs().max()) for s in steeper)


def test_how_much_of_a_session_is_learnt_depends_on_the_rate_of_new_rows(images, task, backbone: Backbone) -> None:
    """At a small rate new rows stay shorter than old ones, whose classes then win."""
    lengths = {}
    for rate in (0.01, 0.1, 1.0):
        method = make("topic", row_lr=rate, lr=0.0)
        method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
        before = {name: value.clone() for name, value in method.block.state_dict().items()}
        method.learn(images(range(BASE, BASE + NEW), 5, 2))
        assert all(torch.equal(value, before[name]) for name, value in method.block.state_dict().items())
        lengths[rate] = float((method.rows[BASE:].norm(dim=1) / method.rows[:BASE].norm(dim=1).mean()).mean())
    assert lengths[0.01] < lengths[0.1] < lengths[1.0]
    assert lengths[0.01] < 0.2


def test_the_rate_of_new_rows_is_chosen_on_base_classes(images, task, backbone: Backbone) -> None:
    method = make("topic", epochs=20)
    method.fit(images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone))
    assert method.remarks() == {"chosen": {"row_lr": method.value("row_lr")}}
    assert method.value("row_lr") in method.tried["row_lr"]
    assert method.lr > 0

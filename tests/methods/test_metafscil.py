import torch
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import class_means
from masil.methods import make
from masil.methods.episodes import EpisodeSampler
from masil.methods.metafscil import Gate, all_questions, fake_sessions

BASE, NEW = 5, 2


def test_a_sequence_repeats_no_class_and_asks_about_all_classes_met() -> None:
    labels = torch.arange(14).repeat(12)
    sessions = list(fake_sessions(EpisodeSampler(labels, torch.Generator().manual_seed(0)), 3, 5, 4))
    assert [len(session.classes) for session in sessions] == [4, 3, 3, 3]
    order = torch.cat([session.classes for session in sessions])
    assert len(set(order.tolist())) == len(order)
    asked, truth = all_questions(sessions[:3])
    assert torch.equal(order[truth], labels[asked])
    assert set(truth.tolist()) == set(range(10))  # also those of which the last session has no shot
    shown = torch.cat([session.shots for session in sessions])
    assert not set(asked.tolist()) & set(shown.tolist())


def test_the_gate_starts_open() -> None:
    f = torch.rand(4, 8)
    assert torch.equal(Gate(8, torch.Generator().manual_seed(0))(f).detach(), f)


def test_the_outer_loop_changes_block_and_gate_and_the_inner_loop_the_block_alone(
    images, task, backbone: Backbone, weights_move
) -> None:
    base, told = images(range(BASE), 8, 1), task(BASE, NEW, backbone=backbone)
    start, method = make("metafscil", sequences=0), make("metafscil", sequences=3, outer_lr=0.1)
    for each in (start, method):
        each.fit(base, told)
    with weights_move(start.block):
        start.block.load_state_dict(method.block.state_dict())
    gate = [weight.clone() for weight in method.gate.parameters()]
    assert not all(map(torch.equal, gate, start.gate.parameters()))
    with weights_move(method.block):
        method.learn(images(range(BASE, BASE + NEW), 5, 2))
    assert all(map(torch.equal, gate, method.gate.parameters()))


def test_without_any_step_it_is_the_nearest_class_mean(images, task, backbone: Backbone) -> None:
    base, shots = images(range(BASE), 8, 1), images(range(BASE, BASE + NEW), 5, 2)
    method = make("metafscil", sequences=0, warmup=0, steps=0)
    method.fit(base, task(BASE, NEW, backbone=backbone))
    method.learn(shots)
    rows, labels = torch.cat([base.activations, shots.activations]), torch.cat([base.labels, shots.labels])
    expected = class_means(functional.normalize(rows), labels)
    torch.testing.assert_close(method.vectors, expected, atol=1e-4, rtol=1e-3)

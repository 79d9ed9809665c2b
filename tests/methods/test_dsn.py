"""DSN: what a branch adds, what a session leaves alone, and how gates sharpen."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Samples, make
from masil.methods.dsn import node_cosines, open_gate


def clusters(classes: range, each: int, seed: int) -> Samples:
    centres = torch.rand(10, 16, generator=torch.Generator().manual_seed(0)).pow(3)
    labels = torch.tensor(classes).repeat(each)
    noise = torch.randn(len(labels), 16, generator=torch.Generator().manual_seed(seed))
    return Samples((centres[labels] + 0.05 * noise).relu(), labels=labels)


@pytest.fixture
def taught(task):
    def teach(**parameters: object):
        method = make("dsn", epochs=10, **parameters)
        method.fit(clusters(range(6), 20, 1), task(6, 2))
        return method

    return teach


def tensors(method) -> list[Tensor]:
    return [method.fc, method.base_rows, *(part for b in method.branches for part in (b.nodes, b.rows, b.gate))]


def test_with_its_gate_shut_a_branch_compares_the_shared_feature_with_the_mapped_class_means(taught) -> None:
    method = taught(lr=0.0)
    shots = clusters(range(6, 8), 5, 2)
    method.learn(shots)
    method.branches[0].gate = torch.zeros(16)
    means = torch.stack([shots.activations[shots.labels == label].mean(0) for label in (6, 7)])
    z, vectors = (functional.normalize(rows @ method.fc) for rows in (shots.activations, means))
    torch.testing.assert_close(method.logits(shots.activations)[:, 6:], 16 * z @ vectors.T)


@pytest.mark.parametrize("all_layers", [False, True])
def test_a_session_trains_its_own_branch_and_the_rest_only_if_asked_to(taught, all_layers: bool) -> None:
    method = taught(all_layers=all_layers)
    method.learn(clusters(range(6, 8), 5, 2))
    before = [tensor.clone() for tensor in tensors(method)]
    first = copy.deepcopy(method.branches[0])
    method.learn(clusters(range(8, 10), 5, 3))
    same = [torch.equal(old, new) for old, new in zip(before, tensors(method), strict=False)]
    assert same == ([False, False, False, False, True] if all_layers else [True] * 5)
    assert not torch.equal(method.branches[1].nodes, method.fc.T)
    assert torch.equal(first.gate, method.branches[0].gate)


def test_gates_sharpen_from_epoch_to_epoch() -> None:
    cosines = node_cosines(*torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0)))
    sharpness = torch.stack([(open_gate(cosines, epoch) - 0.5).abs() for epoch in range(10)])
    assert bool((sharpness.diff(dim=0) > 0).all())


def test_compression_shuts_nodes(taught) -> None:
    gates = []
    for compression in (0.0, 20.0):
        method = taught(compression=compression)
        method.learn(clusters(range(6, 8), 5, 2))
        gates.append(float(method.branches[0].gate.mean()))
    assert gates[1] < gates[0] - 0.05


def test_classes_are_recalled_as_they_were(taught) -> None:
    method = taught()
    base = clusters(range(6), 20, 1)
    drawn, labels = method.gaussians.sample(5000, torch.Generator().manual_seed(0), classes=[2])
    own = base.activations[base.labels == 2]
    assert set(labels.tolist()) == {2}
    # The error of a mean of 5,000 draws is .014 deviations, that of a variance .02 of itself.
    torch.testing.assert_close(drawn.mean(0), own.mean(0), atol=0.01, rtol=0)
    torch.testing.assert_close(drawn.T.cov(), own.T.cov(), atol=0.002, rtol=0)

"""DSN: what a branch adds, what a session leaves alone, and how gates sharpen."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Samples, make
from masil.methods.dsn import ClassGaussians, covariance_factor, mixed_factor, node_cosines, open_gate


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clusters(classes: range, each: int, seed: int) -> Samples:
    centres = torch.rand(10, 16, generator=seeded()).pow(3)
    labels = torch.tensor(classes).repeat(each)
    noise = torch.randn(len(labels), 16, generator=seeded(seed))
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
    cosines = node_cosines(*torch.randn(2, 8, 8, generator=seeded()))
    sharpness = torch.stack([(open_gate(cosines, epoch) - 0.5).abs() for epoch in range(10)])
    assert bool((sharpness.diff(dim=0) > 0).all())


def test_compression_shuts_nodes(taught) -> None:
    gates = []
    for compression in (0.0, 20.0):
        method = taught(compression=compression)
        method.learn(clusters(range(6, 8), 5, 2))
        gates.append(float(method.branches[0].gate.mean()))
    assert gates[1] < gates[0] - 0.05


def test_classes_are_remembered_by_mean_and_covariance(taught) -> None:
    memory, base = taught().gaussians, clusters(range(6), 20, 1)
    for label, (mean, factor) in enumerate(zip(memory.means, memory.factors, strict=True)):
        rows = base.activations[base.labels == label]
        torch.testing.assert_close(mean, rows.mean(0))
        torch.testing.assert_close(factor.T @ factor, torch.cov(rows.T), atol=1e-6, rtol=1e-4)


def test_factors_give_the_covariances_and_their_mixture() -> None:
    parts = torch.randn(2, 8, 5, generator=seeded(), dtype=torch.float64)
    factors = [covariance_factor(part, 8) for part in parts]
    for part, factor in zip(parts, factors, strict=True):
        torch.testing.assert_close(factor.T @ factor, torch.cov(part.T))
    weights = torch.tensor([0.3, 1.2], dtype=torch.float64)
    mixed = mixed_factor(factors, weights, 16)
    expected = weights[0] * torch.cov(parts[0].T) + weights[1] * torch.cov(parts[1].T)
    torch.testing.assert_close(mixed.T @ mixed, expected)
    assert mixed_factor(factors, weights, 2).shape == (2, 5)


def test_drawn_rows_have_the_class_mean_and_covariance() -> None:
    of = torch.arange(2).repeat(9)
    rows = torch.randn(18, 4, generator=seeded()) + 3 * torch.eye(2, 4)[of]
    memory = ClassGaussians.fit(rows, of, 9)
    drawn, labels = memory.sample(20_000, seeded(1))
    for label in (0, 1):
        own = drawn[labels == label]
        spread = memory.factors[label].square().sum(0).max().sqrt()
        # Five standard errors of a mean of 20,000, and of a product of two normal numbers.
        assert float((own.mean(0) - memory.means[label]).abs().max()) < 5 * spread / 20_000**0.5
        error = torch.cov(own.T) - torch.cov(rows[label == of].T)
        assert float(error.abs().max()) < 5 * 2**0.5 * spread**2 / 20_000**0.5


def test_a_class_of_one_row_is_its_row() -> None:
    memory = ClassGaussians.fit(torch.tensor([[1.0, 2.0], [0.0, 1.0], [2.0, 3.0]]), torch.tensor([0, 1, 1]), 2)
    drawn, labels = memory.sample(2, seeded())
    assert torch.equal(drawn[:2], torch.tensor([[1.0, 2.0]] * 2))
    assert labels.tolist() == [0, 0, 1, 1]

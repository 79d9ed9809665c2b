from collections.abc import Callable

import pytest
import torch
from torch import nn

from masil.backbones import create
from masil.training import Average, Recipe
from masil.training.average import WeightAverage
from masil.training.loss import Network
from masil.training.trained import built_loss


@pytest.fixture
def network(tiny: Callable[..., Recipe]) -> Network:
    backbone = create("resnet20", width=0.5)
    return Network(backbone, built_loss(backbone.features, 3, tiny()))


def walk(network: Network, average: WeightAverage, steps: int) -> list[torch.Tensor]:
    seen = []
    for step in range(steps):
        for parameter in network.parameters():
            parameter.data.add_(step + 1.0)
        average.update(network)
        seen.append(network.head.class_vectors(3))
    return seen


def test_the_plain_mean_is_the_mean(network: Network) -> None:
    average = WeightAverage(network, Average("last"))
    seen = walk(network, average, 5)
    torch.testing.assert_close(average.network.head.class_vectors(3), torch.stack(seen).mean(0))
    assert average.count == 5


def test_the_exponential_mean_begins_plainly_and_then_decays(network: Network) -> None:
    average = WeightAverage(network, Average("ema", decay=0.75))
    seen = walk(network, average, 6)
    expected = seen[0]
    for step, value in enumerate(seen[1:], start=2):
        weight = max(1 / step, 0.25)
        expected = (1 - weight) * expected + weight * value
    torch.testing.assert_close(average.network.head.class_vectors(3), expected)


def test_the_average_is_a_copy(network: Network) -> None:
    before = network.head.class_vectors(3)
    average = WeightAverage(network, Average("ema"))
    average.network.head.start_at(torch.ones(3, network.backbone.features))
    assert torch.equal(network.head.class_vectors(3), before)
    assert average.network.run.__self__ is average.network.backbone  # type: ignore[attr-defined]


def test_refreshed_batch_norms_have_the_statistics_of_the_batches(network: Network) -> None:
    average = WeightAverage(network, Average("last"))
    batches = [torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    average.refresh(batches)
    backbone = average.network.backbone
    first = backbone.get_submodule("bn1")
    assert isinstance(first, nn.BatchNorm2d)
    assert first.running_mean is not None
    with torch.no_grad():
        seen = [backbone.get_submodule("conv1")(backbone.preprocess(batch)).mean((0, 2, 3)) for batch in batches]
    torch.testing.assert_close(first.running_mean, torch.stack(seen).mean(0))
    assert first.momentum == 0.1
    assert not backbone.training

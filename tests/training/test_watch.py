import logging
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from masil.backbones import create
from masil.data import ArrayImages
from masil.training import Recipe, Watch
from masil.training.batches import Batches
from masil.training.loss import Network
from masil.training.trained import built_loss
from masil.training.watch import activations, measure


@pytest.fixture
def batches(patterns: Callable[..., ArrayImages], tiny: Callable[..., Recipe]) -> Batches:
    return Batches(patterns(), tiny(watch=Watch(holdout=4, nc_images=5)), 16, torch.device("cpu"))


@pytest.fixture
def network(batches: Batches) -> Network:
    backbone = create("resnet20", width=0.5)
    return Network(backbone, built_loss(backbone.features, batches.classes, batches.recipe))


def test_activations_do_not_depend_on_the_chunk(
    network: Network, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.train()
    whole = activations(network, batches, batches.pixels, 8)
    monkeypatch.setattr("masil.training.watch.CHUNK", 7)
    torch.testing.assert_close(activations(network, batches, batches.pixels, 8), whole)
    assert whole.shape == (80, 32)
    assert float(whole.min()) >= 0


def test_accuracy_is_that_of_the_nearest_class_vector(network: Network, batches: Batches) -> None:
    row = measure(network, batches, 16, collapse=False)
    found = functional.normalize(activations(network, batches, batches.held_out[0], 16))
    right = (found @ functional.normalize(network.head.class_vectors(4)).T).argmax(1) == batches.held_out[1]
    assert row == {"accuracy": pytest.approx(float(right.double().mean()))}


def test_collapse_is_measured_if_asked(network: Network, batches: Batches) -> None:
    row = measure(network, batches, 16, collapse=True)
    assert {"nc1", "nc3", "nc4", "equinorm_means", "simplex_vectors"} <= row.keys()


def test_a_dead_network_is_a_warning_not_an_end(
    network: Network, batches: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    for parameter in network.backbone.parameters():
        parameter.data.zero_()
    with caplog.at_level(logging.WARNING):
        row = measure(network, batches, 16, collapse=True)
    assert set(row) == {"accuracy"}
    assert "has the network died" in caplog.text

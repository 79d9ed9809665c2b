"""The network, its average and what is measured on it."""

import logging

import pytest
import torch
from torch import nn
from torch.nn import functional

from masil.backbones import create
from masil.training import Average, Monitoring
from masil.training.batches import Batches
from masil.training.network import activations, make_average, make_network, measure, refresh


@pytest.fixture
def batches(patterns, tiny):
    return Batches(patterns(), tiny(watch=Monitoring(holdout=4, nc_images=5)), 16, torch.device("cpu"))


@pytest.fixture
def network(batches):
    return make_network(create("resnet20", width=0.5), batches.classes, batches.recipe)


@pytest.mark.parametrize("settings", [Average("last"), Average("ema", decay=0.75)], ids=["last", "ema"])
def test_an_average_is_plain_at_first_and_decays_later_if_it_is_exponential(network, settings):
    before = network.head.class_vectors(4)
    average = make_average(network, settings)
    expected = torch.zeros(4, network.backbone.features)
    for step in range(1, 7):
        for parameter in network.parameters():
            parameter.data.add_(step)
        average.update_parameters(network)
        weight = max(1 / step, 0.25) if settings.kind == "ema" else 1 / step
        expected = (1 - weight) * expected + weight * network.head.class_vectors(4)
    torch.testing.assert_close(average.module.head.class_vectors(4), expected)
    assert average.n_averaged == 6
    torch.testing.assert_close(network.head.class_vectors(4), before + 21)  # the average is a copy
    assert average.module.run.__self__ is average.module.backbone


def test_refreshed_batch_norms_have_the_statistics_of_the_batches(network):
    backbone = network.backbone
    pixels = [torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    refresh(backbone, pixels)
    first = backbone.get_submodule("bn1")
    assert isinstance(first, nn.BatchNorm2d)
    assert first.running_mean is not None
    with torch.no_grad():
        seen = [backbone.get_submodule("conv1")(backbone.preprocess(batch)).mean((0, 2, 3)) for batch in pixels]
    torch.testing.assert_close(first.running_mean, torch.stack(seen).mean(0))
    assert first.momentum == 0.1
    assert not backbone.training


def test_activations_do_not_depend_on_the_chunk(network, batches, monkeypatch):
    network.train()
    whole = activations(network, batches, batches.pixels, 8)
    monkeypatch.setattr("masil.training.network.CHUNK", 7)
    torch.testing.assert_close(activations(network, batches, batches.pixels, 8), whole)
    assert whole.shape == (80, 32)
    assert float(whole.min()) >= 0


def test_accuracy_is_that_of_the_nearest_class_vector(network, batches):
    row = measure(network, batches, 16, collapse=False)
    unit = functional.normalize(activations(network, batches, batches.held_out[0], 16))
    right = (unit @ functional.normalize(network.head.class_vectors(4)).T).argmax(1) == batches.held_out[1]
    assert row == {"accuracy": pytest.approx(float(right.double().mean()))}
    measured = measure(network, batches, 16, collapse=True)
    assert {"nc1", "nc3", "nc4", "equinorm_means", "simplex_vectors"} <= measured.keys()


def test_a_dead_network_is_a_warning_not_an_end(network, batches, caplog):
    for parameter in network.backbone.parameters():
        parameter.data.zero_()
    with caplog.at_level(logging.WARNING):
        row = measure(network, batches, 16, collapse=True)
    assert set(row) == {"accuracy"}
    assert "has the network died" in caplog.text

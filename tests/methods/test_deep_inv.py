"""DeepInv: made images have their class and the statistics asked for; a session reads no old image."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import class_means
from masil.methods import Samples, make
from masil.methods.deep_inv import distillation, make_images, roughness, watch_statistics
from masil.methods.stage import StageNetwork

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def settled(trained_images, trained_backbone: Backbone) -> tuple[Backbone, Samples]:
    """Give a network whose batch norms know the statistics of its images, and these."""
    return trained_backbone, trained_images(range(5), 12, 0)


def test_made_images_have_their_class_and_the_statistics_of_real_ones(settled) -> None:
    network, base = settled
    means = class_means(functional.normalize(base.activations), base.labels)
    net = StageNetwork(network, means - means.mean(0), 16.0, "cpu")
    labels = torch.arange(5).repeat(8)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images = make_images(net, labels, 60, torch.Generator().manual_seed(0))
    assert images.shape == (40, 3, 16, 16)
    assert float((net(images).argmax(1) == labels).float().mean()) >= 0.9
    with torch.no_grad(), watch_statistics(net.batch_norms()) as gaps:
        for pixels in (torch.randn(images.shape, generator=torch.Generator().manual_seed(1)), images):
            net(pixels)
    of_noise, of_images = torch.stack(gaps).chunk(2)
    assert of_images.mean() < 0.6 * of_noise.mean()
    assert not any(norm._forward_pre_hooks for norm in net.batch_norms())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_gap_of_the_images_that_the_norms_have_seen_is_nothing(settled) -> None:
    network, base = settled
    net = StageNetwork(network, torch.eye(5, network.features), 16.0, "cpu")
    pixels = network.preprocess(base.images.load(slice(None), network.framing))
    with torch.no_grad(), watch_statistics(net.batch_norms()) as gaps:
        net(pixels)
    assert torch.stack(gaps).mean() < 0.01  # norms remember n/(n − 1) of the variance, of n >= 960 values a channel
    assert len(gaps) == sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def test_a_flat_image_is_smooth() -> None:
    assert float(roughness(torch.ones(2, 3, 4, 4))) == 0
    stripes = torch.tensor([0.0, 1.0]).repeat(2).expand(1, 1, 4, 4)
    assert float(roughness(stripes)) == pytest.approx(12**0.5 + 2 * 9**0.5)


def test_distillation_is_lowest_where_the_answers_are_the_old_ones() -> None:
    before = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    now = before.clone().requires_grad_()
    distillation(now, before, 2.0).backward()
    torch.testing.assert_close(now.grad, torch.zeros(6, 4), atol=1e-6, rtol=0)
    wider = torch.cat([before, torch.zeros(6, 2)], 1).requires_grad_()
    distillation(wider, before, 2.0).backward()
    assert bool((wider.grad[:, 4:] > 0).all())  # new classes are pushed away from what is old


def test_a_session_moves_the_last_stage_and_the_rows_and_replays_only_made_images(
    settled, trained_images, task, weights_move
) -> None:
    network, base = settled
    method = make("deepinv", rounds=4, each=2, epochs=5, gentle=0.01)
    method.fit(base, task(5, 2, backbone=network))
    assert torch.bincount(method.made_labels).tolist() == [2] * 5
    start = copy.deepcopy(method.net)
    with weights_move(method.net.stage):
        method.learn(trained_images(range(5, 7), 5, 2))
    assert torch.bincount(method.made_labels).tolist() == [2] * 7
    assert len(method.made) == 14
    lower = method.net.lower.state_dict()
    assert all(torch.equal(value, lower[name]) for name, value in start.lower.state_dict().items())
    assert not torch.equal(method.net.rows[:5], start.rows)
    assert method.remarks()["made_images"] == 14

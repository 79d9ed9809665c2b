"""The contract every backbone keeps: normalisation, reproducible starts, and a fingerprint that tells weights apart."""

import json

import numpy as np
import pytest
import torch

from masil.backbones import BACKBONES, create
from masil.data import Framing
from masil.errors import InputError, UnknownNameError

BUILT_IN = sorted(set(BACKBONES) - {"transformers"})


def test_preprocess_normalises_each_channel(tiny, noise):
    backbone, pixels = tiny(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0)), noise(3, 16, 20)
    expected = (pixels.numpy() / 255 - np.reshape([0.1, 0.2, 0.3], (3, 1, 1))) / np.reshape([0.5, 0.25, 2.0], (3, 1, 1))
    torch.testing.assert_close(backbone.preprocess(pixels).double(), torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(backbone.preprocess(pixels / 255), backbone.preprocess(pixels), atol=1e-5, rtol=1e-5)
    # In the type and layout of the weights.
    x = tiny().to(torch.float64).to(memory_format=torch.channels_last).preprocess(noise(3))
    assert x.dtype == torch.float64
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert tiny().preprocess(noise(3)).is_contiguous()


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (torch.zeros(3, 16, 16, dtype=torch.uint8), r"shape \[n 3 h w\], but have \(3, 16, 16\)"),
        (torch.zeros(2, 1, 16, 16, dtype=torch.uint8), r"shape \[n 3 h w\], but have \(2, 1, 16, 16\)"),
        (torch.zeros(2, 3, 16, 16, dtype=torch.int64), r"uint8, or float in \[0, 1\], but are torch.int64"),
    ],
)
def test_pixels_and_options_that_are_none(tiny, pixels, sentence):
    with pytest.raises(InputError, match=sentence):
        tiny().preprocess(pixels)
    with pytest.raises(InputError, match="three positive deviations"):
        tiny(std=(1.0, 0.0, 1.0))
    with pytest.raises(InputError, match="must be positive, but is -1"):
        tiny(width=-1)
    with pytest.raises(UnknownNameError, match="no backbone called 'resnet_18'; did you mean 'resnet18'"):
        create("resnet_18")
    with pytest.raises(InputError, match="'resnet18' has no option 'witdh'; did you mean 'width'"):
        create("resnet18", witdh=2)


def test_the_seed_alone_decides_the_start(tiny):
    before = torch.random.get_rng_state()
    first = tiny(seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert tiny(seed=3).fingerprint() == first.fingerprint()
    assert tiny(seed=4).fingerprint() != first.fingerprint()


def test_fingerprint_sees_weights_statistics_and_configuration(tiny):
    trained, warmed = tiny(), tiny()
    with torch.no_grad():
        trained.conv1.weight[0, 0, 0, 0] += 1e-3
        warmed.bn1.running_mean[0] += 1e-3
    others = [tiny(), trained, warmed, tiny(framing=Framing(40, 32)), tiny(mean=(0.5, 0.5, 0.5)), tiny(width=1)]
    assert len({other.fingerprint() for other in others}) == len(others)
    same = tiny().to(memory_format=torch.channels_last)  # layout, counters and kinds of number are not seen
    same.bn1.num_batches_tracked += 5
    assert same.fingerprint() == tiny().fingerprint()
    assert tiny(width=1).fingerprint() == tiny(width=1.0).fingerprint()


# Stored activations and model files are found by these: with every tensor i of the state filled with the number i.
FINGERPRINTS = {
    "resnet12": "45a76f060f38566f", "resnet12_512": "4b1b61c0b991e74a", "resnet18": "7f6046ecc0eef875",
    "resnet18_cifar": "e6e818cdb75c642c", "resnet20": "cdf7cb728b850f05", "efficientnet_lite0": "4d256b88f72d2eca",
    "efficientnet_lite1": "39b36c3b71729f1a", "efficientnet_lite2": "302ff8531d1a15bc",
}  # fmt: skip


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_fingerprint_of_the_same_weights_never_changes(name):
    backbone = create(name)
    with torch.no_grad():
        for i, tensor in enumerate(backbone.state_dict().values()):
            tensor.fill_(i)
    assert backbone.fingerprint().startswith(FINGERPRINTS[name])


def test_the_fingerprint_of_the_pretrained_weights_never_changes():
    assert create("efficientnet_lite0", weights="imagenet").fingerprint().startswith("7409b867f72f6600")


@pytest.mark.parametrize("name", BUILT_IN)
def test_config_rebuilds_the_backbone(name):
    backbone = create(name, width=0.25, framing=Framing(40, 36), mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.1))
    again = create(**json.loads(json.dumps(backbone.config())))
    assert again.fingerprint() == backbone.fingerprint()
    assert (again.name, again.framing, again.mean) == (name, Framing(40, 36), (0.4, 0.5, 0.6))
    assert again.features == backbone.features
    assert not again.training


@pytest.mark.parametrize("name", BUILT_IN)
def test_activations_are_the_mean_of_a_map_of_numbers_from_zero_on(name, noise):
    backbone = create(name, width=0.25).requires_grad_(False)
    x = backbone.preprocess(noise(2, 40))
    activations = backbone(x)
    assert activations.shape == (2, backbone.features)
    assert float(activations.min()) >= 0
    assert float(activations.max()) > 0
    torch.testing.assert_close(activations, backbone.maps(x).mean((2, 3)))

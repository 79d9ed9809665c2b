"""The contract every backbone keeps: normalisation, reproducible starts, and a fingerprint that tells weights apart."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from masil.backbones import create
from masil.backbones.backbone import scaled
from masil.data import Framing
from masil.errors import InputError

PIXELS = torch.randint(0, 256, (3, 3, 16, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def tiny(**options: object):
    return create("resnet20", width=0.5, **options)


def test_preprocess_normalises_each_channel() -> None:
    backbone = tiny(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    expected = (PIXELS.numpy() / 255 - np.reshape([0.1, 0.2, 0.3], (3, 1, 1))) / np.reshape([0.5, 0.25, 2.0], (3, 1, 1))
    torch.testing.assert_close(backbone.preprocess(PIXELS).double(), torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(backbone.preprocess(PIXELS / 255), backbone.preprocess(PIXELS), atol=1e-5, rtol=1e-5)


def test_preprocess_follows_the_type_and_layout_of_the_weights() -> None:
    backbone = tiny().to(torch.float64).to(memory_format=torch.channels_last)
    x = backbone.preprocess(PIXELS)
    assert x.dtype == torch.float64
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert tiny().preprocess(PIXELS).is_contiguous()


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (torch.zeros(3, 16, 16, dtype=torch.uint8), r"shape \[n 3 h w\], but have \(3, 16, 16\)"),
        (torch.zeros(2, 1, 16, 16, dtype=torch.uint8), r"shape \[n 3 h w\], but have \(2, 1, 16, 16\)"),
        (torch.zeros(2, 3, 16, 16, dtype=torch.int64), r"uint8, or float in \[0, 1\], but are torch.int64"),
    ],
)
def test_pixels_that_are_none(pixels: torch.Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tiny().preprocess(pixels)


def test_normalisation_that_is_none() -> None:
    with pytest.raises(InputError, match="three positive deviations"):
        tiny(std=(1.0, 0.0, 1.0))


def test_the_seed_alone_decides_the_start() -> None:
    before = torch.random.get_rng_state()
    first = tiny(seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    assert tiny(seed=3).fingerprint() == first.fingerprint()
    assert tiny(seed=4).fingerprint() != first.fingerprint()


def test_fingerprint_sees_weights_statistics_and_configuration() -> None:
    own = tiny().fingerprint()
    trained, warmed = tiny(), tiny()
    with torch.no_grad():
        trained.conv1.weight[0, 0, 0, 0] += 1e-3
        warmed.bn1.running_mean[0] += 1e-3
    others = [trained, warmed, tiny(framing=Framing(40, 32)), tiny(mean=(0.5, 0.5, 0.5)), create("resnet20")]
    assert len({own, *(other.fingerprint() for other in others)}) == 1 + len(others)


def test_fingerprint_does_not_see_layout_or_counters() -> None:
    backbone = tiny().to(memory_format=torch.channels_last)
    backbone.bn1.num_batches_tracked += 5
    assert backbone.fingerprint() == tiny().fingerprint()


def test_activations_are_the_mean_of_the_map() -> None:
    backbone = tiny()
    x = backbone.preprocess(PIXELS)
    torch.testing.assert_close(backbone(x), backbone.maps(x).mean((2, 3)))


@settings(deadline=None)
@given(channels=st.integers(1, 2000), width=st.floats(0.05, 8))
def test_scaled_channels_come_in_eights(channels: int, width: float) -> None:
    found = scaled(channels, width)
    assert found % 8 == 0
    assert found >= 8
    assert found == 8 or abs(found - channels * width) <= 4 + 1e-6


def test_a_width_that_is_none() -> None:
    with pytest.raises(InputError, match="must be positive, but is -1"):
        create("resnet20", width=-1)

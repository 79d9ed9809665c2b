"""EfficientNet-Lite: the padding its weights were trained with, known sizes, and birds that it knows for birds."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from masil.backbones import create, open_engine
from masil.backbones.efficientnet import SameConv
from masil.backbones.weights import _packaged
from masil.data import FileImages


@settings(deadline=None)
@given(
    height=st.integers(1, 40), width=st.integers(1, 40), kernel=st.sampled_from([3, 5]), stride=st.sampled_from([1, 2])
)
def test_same_convolution_by_its_definition(height: int, width: int, kernel: int, stride: int) -> None:
    conv = SameConv(2, 1, kernel, stride, bias=False)
    generator = torch.Generator().manual_seed(height * 41 + width)
    with torch.no_grad():
        conv.weight.normal_(generator=generator)
    x = torch.randn(1, 2, height, width, generator=generator)
    out = conv(x)
    assert out.shape[2:] == (math.ceil(height / stride), math.ceil(width / stride))
    # Output i sees the inputs i·stride − before …, where before is half of what is missing, rounded down.
    far = functional.pad(x, (kernel, 2 * kernel, kernel, 2 * kernel))
    before = [max((math.ceil(s / stride) - 1) * stride + kernel - s, 0) // 2 for s in (height, width)]
    for i in {0, out.shape[2] - 1}:
        for j in {0, out.shape[3] - 1}:
            top, left = kernel + i * stride - before[0], kernel + j * stride - before[1]
            window = far[0, :, top : top + kernel, left : left + kernel]
            torch.testing.assert_close(out[0, 0, i, j], (window * conv.weight[0]).sum())


@pytest.mark.parametrize(
    ("name", "weights"),
    [("efficientnet_lite0", 3_371_008), ("efficientnet_lite1", 4_135_680), ("efficientnet_lite2", 4_811_072)],
)
def test_known_sizes(name: str, weights: int) -> None:
    backbone = create(name)
    assert sum(weight.numel() for weight in backbone.parameters()) == weights
    assert backbone.features == 1280


@pytest.mark.parametrize("size", [64, 75])
def test_pretrained_activations_lie_between_zero_and_six(size: int) -> None:
    backbone = create("efficientnet_lite0", weights="imagenet")
    pixels = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        maps = backbone.maps(backbone.preprocess(pixels))
    assert maps.shape == (2, 1280, -(-size // 32), -(-size // 32))
    assert float(maps.min()) == 0
    assert 0 < float(maps.max()) <= 6


@pytest.mark.data
def test_birds_are_birds(data_folder: str) -> None:
    """The file's own ImageNet classifier calls nearly every bird a bird: architecture, weights and pixels are right."""
    photos = sorted(Path(data_folder, "CUB_200_2011", "images").glob("*/*.jpg"))[::250]
    if not photos:
        pytest.skip("needs CUB-200")
    backbone = create("efficientnet_lite0", weights="imagenet")
    images = FileImages(Path("/"), [str(photo) for photo in photos], torch.zeros(len(photos)))
    activations = open_engine(backbone, engine="onnxruntime", device="cpu").run(
        images.load(slice(None), backbone.framing)
    )
    raw = torch.load(_packaged("efficientnet_lite0"), weights_only=True)
    named = (activations @ raw["_fc.weight"].T + raw["_fc.bias"]).argmax(1)
    birds = ((named >= 7) & (named <= 24)) | ((named >= 80) & (named <= 100)) | ((named >= 127) & (named <= 146))
    assert float(birds.float().mean()) > 0.9

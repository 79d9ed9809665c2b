"""ResNet-12: known sizes, and a last activation that is >= 0 although the others are not."""

import pytest
import torch

from masil.backbones import create
from masil.errors import InputError


@pytest.mark.parametrize(
    ("name", "features", "weights"), [("resnet12", 640, 12_424_320), ("resnet12_512", 512, 7_996_800)]
)
def test_known_sizes(name: str, features: int, weights: int) -> None:
    backbone = create(name)
    assert backbone.features == features
    assert sum(weight.numel() for weight in backbone.parameters()) == weights


@pytest.mark.parametrize("size", [16, 32, 50])
def test_only_the_last_block_is_non_negative(size: int) -> None:
    backbone = create("resnet12", width=0.125)
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    backbone.requires_grad_(False)
    assert float(backbone.layer1(x).min()) < 0
    assert float(backbone.maps(x).min()) == 0
    assert backbone.maps(x).shape[2] == size // 16
    assert backbone(x).shape == (2, 80)


def test_leaky_slope_inside() -> None:
    block = create("resnet12", width=0.125).layer1[0]
    with torch.no_grad():
        for norm in (block.bn3, block.downsample[1]):
            norm.weight.zero_()
            norm.bias.fill_(-1.0)
    assert block(torch.zeros(1, 3, 4, 4)).unique().tolist() == pytest.approx([-0.2])


def test_images_that_are_too_small() -> None:
    with pytest.raises(InputError, match="at least 16 px a side, but these images have 15 × 20 px"):
        create("resnet12", width=0.125).maps(torch.zeros(1, 3, 15, 20))

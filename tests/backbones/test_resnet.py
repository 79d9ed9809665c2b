"""ResNets: torchvision's names, known sizes, any input size, activations >= 0."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from masil.backbones import create
from masil.backbones.resnet import BasicBlock


def torchvision_names(blocks: tuple[int, ...], strided: tuple[int, ...]) -> set[str]:
    def norm(prefix: str) -> list[str]:
        parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        return [f"{prefix}.{part}" for part in parts]

    names = ["conv1.weight", *norm("bn1")]
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            prefix = f"layer{stage}.{block}"
            names += [
                f"{prefix}.conv1.weight",
                f"{prefix}.conv2.weight",
                *norm(f"{prefix}.bn1"),
                *norm(f"{prefix}.bn2"),
            ]
            if block == 0 and stage in strided:
                names += [f"{prefix}.downsample.0.weight", *norm(f"{prefix}.downsample.1")]
    return set(names)


@pytest.mark.parametrize(
    ("name", "names", "weights"),
    [
        ("resnet18", torchvision_names((2, 2, 2, 2), (2, 3, 4)), 11_176_512),
        ("resnet18_cifar", torchvision_names((2, 2, 2, 2), (2, 3, 4)), 11_168_832),
        ("resnet20", torchvision_names((3, 3, 3), (2, 3)), 271_824),
    ],
)
def test_names_and_number_of_weights(name: str, names: set[str], weights: int) -> None:
    backbone = create(name)
    assert set(backbone.state_dict()) == names
    assert sum(weight.numel() for weight in backbone.parameters()) == weights


@pytest.mark.parametrize("name", ["resnet18", "resnet18_cifar", "resnet20"])
@pytest.mark.parametrize("size", [16, 24, 33])
def test_any_size_gives_non_negative_activations(name: str, size: int) -> None:
    backbone = create(name, width=0.125)
    pixels = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    x = backbone.preprocess(pixels)
    maps = backbone.maps(x).detach()
    shrink = {"resnet18": 32, "resnet18_cifar": 4 * 2, "resnet20": 4}[name]
    assert maps.shape == (2, backbone.features, -(-size // shrink), -(-size // shrink))
    assert float(maps.min()) == 0
    assert backbone(x).shape == (2, backbone.features)


def test_width_multiplies_every_stage() -> None:
    backbone = create("resnet18_cifar", width=0.5)
    assert backbone.features == 256
    assert backbone.get_submodule("layer3.1.conv2").weight.shape == (128, 128, 3, 3)


def test_basic_block_is_relu_of_the_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    block = BasicBlock(4, 6, stride=2).eval()
    for weight in block.parameters():
        nn.init.normal_(weight, generator=generator)
    x = torch.randn(2, 4, 7, 7, generator=generator)

    def normed(norm: nn.BatchNorm2d, y: torch.Tensor) -> torch.Tensor:
        shape = (1, -1, 1, 1)
        return y / (1 + norm.eps) ** 0.5 * norm.weight.view(shape) + norm.bias.view(shape)

    inner = normed(block.bn1, functional.conv2d(x, block.conv1.weight, stride=2, padding=1)).clamp_min(0)
    residual = normed(block.bn2, functional.conv2d(inner, block.conv2.weight, padding=1))
    shortcut = normed(block.downsample[1], functional.conv2d(x, block.downsample[0].weight, stride=2))
    torch.testing.assert_close(block(x), (residual + shortcut).clamp_min(0))


@pytest.mark.data
def test_the_imagenet_file_loads_as_it_is(data_folder: str) -> None:
    file = Path(data_folder, "weights", "resnet18_imagenet.safetensors")
    if not file.exists():
        pytest.skip(f"needs {file}")
    backbone = create("resnet18", weights=file)
    assert {weight.dtype for weight in backbone.parameters()} == {torch.float32}
    # A trained first layer has edge and colour filters of very different strength; a drawn one has not.
    strength = backbone.conv1.weight.detach().flatten(1).norm(dim=1)
    assert float(strength.std() / strength.mean()) > 0.5

"""ResNet-18 and ResNet-20 (He et al. 2016), with torchvision's module names: its weight files load as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from masil.backbones.backbone import CIFAR_MEAN, CIFAR_STD, ConvNet, Plan
from masil.data import Framing


@final
@dataclass(frozen=True, kw_only=True)
class ResNetPlan(Plan):
    """The stages of a ResNet and the kind of its stem."""

    channels: tuple[int, ...]
    blocks: tuple[int, ...]
    stem: Literal["cifar", "imagenet"]


WIDE, TWICE = (64, 128, 256, 512), (2, 2, 2, 2)
CIFAR = Framing(32, 32)
PLANS = {
    "resnet18": ResNetPlan(Framing(256, 224), channels=WIDE, blocks=TWICE, stem="imagenet"),
    "resnet18_cifar": ResNetPlan(CIFAR, CIFAR_MEAN, CIFAR_STD, channels=WIDE, blocks=TWICE, stem="cifar"),
    "resnet20": ResNetPlan(CIFAR, CIFAR_MEAN, CIFAR_STD, channels=(16, 32, 64), blocks=(3, 3, 3), stem="cifar"),
}


class BasicBlock(nn.Module):
    """ReLU(x + F(x)), F two 3 × 3 convolutions; where the shape changes, x goes through a 1 × 1 convolution."""

    def __init__(self, fan_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or fan_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(fan_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map [n fan_in h w] to [n channels h/stride w/stride], >= 0."""
        residual = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(residual + shortcut)


@final
class ResNet(ConvNet):
    """A ResNet of basic blocks; its last operation is a ReLU, so its activations are >= 0 as they are.

    The CIFAR stem is one 3 × 3 convolution; the ImageNet stem is a 7 × 7 convolution of stride 2 and a max-pool.
    """

    def build(self, plan: ResNetPlan) -> int:
        """Make the stem and the stages layer1, layer2, …"""
        channels = [self.scaled(stage) for stage in plan.channels]
        if plan.stem == "cifar":
            self.conv1 = nn.Conv2d(3, channels[0], 3, padding=1, bias=False)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(3, channels[0], 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.stages = [f"layer{i + 1}" for i in range(len(channels))]
        fan_in = channels[0]
        for i, (stage, count) in enumerate(zip(channels, plan.blocks, strict=True)):
            first = BasicBlock(fan_in, stage, stride=1 if i == 0 else 2)
            rest = (BasicBlock(stage, stage, stride=1) for _ in range(count - 1))
            self.add_module(self.stages[i], nn.Sequential(first, *rest))
            fan_in = stage
        return fan_in

    def maps(self, x: Tensor) -> Tensor:
        """Give the last stage's feature map: input size / 8 (CIFAR stem), / 32 (ImageNet stem) or / 4 (ResNet-20)."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return x

"""ResNet-12, the few-shot literature's own (Oreshkin et al. 2018): four blocks of three convolutions and a max-pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, initialise, scaled
from masil.data import Framing
from masil.errors import InputError

CHANNELS = {
    "resnet12": (64, 160, 320, 640),
    "resnet12_512": (64, 128, 256, 512),
}
SMALLEST = 16  # each of the four blocks halves the image
SLOPE = 0.1


class PooledBlock(nn.Module):
    """Max-pool of act(F(x) + S(x)): F three 3 × 3 convolutions, S a 1 × 1 convolution, act LeakyReLU(.1) or ReLU."""

    def __init__(self, fan_in: int, channels: int, non_negative: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.downsample = nn.Sequential(nn.Conv2d(fan_in, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.slope = 0.0 if non_negative else SLOPE

    def forward(self, x: Tensor) -> Tensor:
        """Map [n fan_in h w] to [n channels h/2 w/2]."""
        residual = functional.leaky_relu(self.bn1(self.conv1(x)), SLOPE)
        residual = functional.leaky_relu(self.bn2(self.conv2(residual)), SLOPE)
        residual = self.bn3(self.conv3(residual))
        total = residual + self.downsample(x)
        return functional.max_pool2d(functional.leaky_relu(total, self.slope), 2)


@final
class ResNet12(Backbone):
    """ResNet-12 whose last LeakyReLU is a ReLU: that alone makes its activations >= 0."""

    def __init__(
        self,
        name: str,
        width: float = 1.0,
        seed: int = 0,
        framing: Framing | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        channels = [scaled(stage, width) for stage in CHANNELS[name]]
        super().__init__(name, channels[-1], framing or Framing(92, 84), mean or IMAGENET_MEAN, std or IMAGENET_STD)
        self.width = float(width)
        with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
            self.layer1 = nn.Sequential(PooledBlock(3, channels[0], non_negative=False))
            self.layer2 = nn.Sequential(PooledBlock(channels[0], channels[1], non_negative=False))
            self.layer3 = nn.Sequential(PooledBlock(channels[1], channels[2], non_negative=False))
            self.layer4 = nn.Sequential(PooledBlock(channels[2], channels[3], non_negative=True))
        initialise(self, seed)

    def maps(self, x: Tensor) -> Tensor:
        """Give the fourth block's feature map: input size / 16."""
        if min(x.shape[2:]) < SMALLEST:
            raise InputError(
                f"{self.name} halves an image four times and needs at least {SMALLEST} px a side, "
                f"but these images have {x.shape[2]} × {x.shape[3]} px."
            )
        out: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return out

    def config(self) -> dict[str, Any]:
        """Add the width multiplier."""
        return {**super().config(), "width": self.width}

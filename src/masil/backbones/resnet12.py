"""ResNet-12, the few-shot literature's own (Oreshkin et al. 2018): four blocks of three convolutions and a max-pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor, nn
from torch.nn import functional

from masil.backbones.backbone import ConvNet, Plan
from masil.data import Framing
from masil.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class ResNet12Plan(Plan):
    """The channels of the four blocks."""

    channels: tuple[int, int, int, int]


PLANS = {
    "resnet12": ResNet12Plan(framing=Framing(92, 84), channels=(64, 160, 320, 640)),
    "resnet12_512": ResNet12Plan(framing=Framing(92, 84), channels=(64, 128, 256, 512)),
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
class ResNet12(ConvNet):
    """ResNet-12 whose last LeakyReLU is a ReLU: that alone makes its activations >= 0."""

    def build(self, plan: ResNet12Plan) -> int:
        """Make the blocks layer1 … layer4."""
        fan_in, self.layers = 3, [f"layer{i}" for i in range(1, 5)]
        for layer, stage in zip(self.layers, plan.channels, strict=True):
            channels = self.scaled(stage)
            block = PooledBlock(fan_in, channels, non_negative=layer == self.layers[-1])
            self.add_module(layer, nn.Sequential(block))
            fan_in = channels
        return fan_in

    def maps(self, x: Tensor) -> Tensor:
        """Give the fourth block's feature map: input size / 16."""
        if min(x.shape[2:]) < SMALLEST:
            raise InputError(
                f"{self.name} halves an image four times and needs at least {SMALLEST} px a side, "
                f"but these images have {x.shape[2]} × {x.shape[3]} px."
            )
        for layer in self.layers:
            x = self.get_submodule(layer)(x)
        return x

"""ResNet-18 and ResNet-20 (He et al. 2016) with torchvision's module names, whose weight files load; and ResNet-12."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones.backbone import CIFAR_MEAN, CIFAR_STD, ConvNet, Plan
from masil.data import Framing
from masil.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class ResNetPlan(Plan):
    """The channels and blocks of each stage, and the kind of the stem; ResNet-12 has none."""

    channels: tuple[int, ...]
    blocks: tuple[int, ...] = (1, 1, 1, 1)
    stem: Literal["cifar", "imagenet"] | None = None


WIDE, TWICE = (64, 128, 256, 512), (2, 2, 2, 2)
CIFAR = Framing(32, 32)
PLANS = {
    "resnet18": ResNetPlan(Framing(256, 224), channels=WIDE, blocks=TWICE, stem="imagenet"),
    "resnet18_cifar": ResNetPlan(CIFAR, CIFAR_MEAN, CIFAR_STD, channels=WIDE, blocks=TWICE, stem="cifar"),
    "resnet20": ResNetPlan(CIFAR, CIFAR_MEAN, CIFAR_STD, channels=(16, 32, 64), blocks=(3, 3, 3), stem="cifar"),
}
PLANS_12 = {
    "resnet12": ResNetPlan(Framing(92, 84), channels=(64, 160, 320, 640)),
    "resnet12_512": ResNetPlan(Framing(92, 84), channels=WIDE),
}
SMALLEST = 16  # px; each of ResNet-12's four blocks halves the image
SLOPE = 0.1  # of its leaky rectifiers


def _conv3(fan_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(fan_in, channels, 3, stride, padding=1, bias=False)


def _shortcut(fan_in: int, channels: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(nn.Conv2d(fan_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))


class BasicBlock(nn.Module):
    """ReLU(x + F(x)), F two 3 × 3 convolutions; where the shape changes, x goes through a 1 × 1 convolution."""

    def __init__(self, fan_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv3(fan_in, channels, stride), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = _conv3(channels, channels), nn.BatchNorm2d(channels)
        same = stride == 1 and fan_in == channels
        self.downsample = None if same else _shortcut(fan_in, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map [n fan_in h w] to [n channels h/stride w/stride], >= 0."""
        residual = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(residual + shortcut)


class PooledBlock(nn.Module):
    """Max-pool of act(F(x) + S(x)): F three 3 × 3 convolutions, S a 1 × 1 convolution, act LeakyReLU(.1) or ReLU."""

    def __init__(self, fan_in: int, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv3(fan_in, channels), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = _conv3(channels, channels), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = _conv3(channels, channels), nn.BatchNorm2d(channels)
        self.downsample = _shortcut(fan_in, channels)
        self.slope = SLOPE

    def forward(self, x: Tensor) -> Tensor:
        """Map [n fan_in h w] to [n channels h/2 w/2]."""
        residual = functional.leaky_relu(self.bn1(self.conv1(x)), SLOPE)
        residual = functional.leaky_relu(self.bn2(self.conv2(residual)), SLOPE)
        total = self.bn3(self.conv3(residual)) + self.downsample(x)
        return functional.max_pool2d(functional.leaky_relu(total, self.slope), 2)


class _Staged(ConvNet):
    """A network whose stages are called layer1, layer2, …"""

    def add_stages(self, stages: list[nn.Sequential]) -> None:
        """Add the stages under their names."""
        self.stages = [f"layer{i + 1}" for i in range(len(stages))]
        for name, stage in zip(self.stages, stages, strict=True):
            self.add_module(name, stage)

    def stem(self, x: Tensor) -> Tensor:
        """Give pixels as they are."""
        return x

    def sections(self) -> list[list[nn.Module]]:
        """Give the blocks of every stage."""
        return [list(self.get_submodule(stage).children()) for stage in self.stages]

    def maps(self, x: Tensor) -> Tensor:
        """Give the last stage's feature map."""
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return x


@final
class ResNet(_Staged):
    """A ResNet of basic blocks; its last operation is a ReLU, so its activations are >= 0 as they are.

    The CIFAR stem is one 3 × 3 convolution; the ImageNet stem is a 7 × 7 convolution of stride 2 and a max-pool.
    """

    def build(self, plan: ResNetPlan) -> int:
        """Make the stem and the stages."""
        channels = [self.scaled(stage) for stage in plan.channels]
        if plan.stem == "cifar":
            self.conv1 = _conv3(3, channels[0])
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = nn.Conv2d(3, channels[0], 7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(channels[0])
        stages = []
        for i, (stage, count) in enumerate(zip(channels, plan.blocks, strict=True)):
            first = BasicBlock(channels[max(0, i - 1)], stage, stride=1 if i == 0 else 2)
            stages.append(nn.Sequential(first, *(BasicBlock(stage, stage, stride=1) for _ in range(count - 1))))
        self.add_stages(stages)
        return channels[-1]

    def stem(self, x: Tensor) -> Tensor:
        """Run the first convolution."""
        return self.maxpool(torch.relu(self.bn1(self.conv1(x))))  # type: ignore[no-any-return]

    def maps(self, x: Tensor) -> Tensor:
        """Give the last stage's feature map: input size / 8 (CIFAR stem), / 32 (ImageNet stem) or / 4 (ResNet-20)."""
        return super().maps(self.stem(x))


@final
class ResNet12(_Staged):
    """ResNet-12, the few-shot literature's own (Oreshkin et al. 2018): four blocks, each of which halves the image.

    Its last LeakyReLU is a ReLU here: that alone makes its activations >= 0.
    """

    def build(self, plan: ResNetPlan) -> int:
        """Make the four blocks."""
        channels = [self.scaled(stage) for stage in plan.channels]
        blocks = [PooledBlock(*shape) for shape in zip([3, *channels], channels, strict=False)]
        blocks[-1].slope = 0.0
        self.add_stages([nn.Sequential(block) for block in blocks])
        return channels[-1]

    def maps(self, x: Tensor) -> Tensor:
        """Give the fourth block's feature map: input size / 16."""
        if min(x.shape[2:]) < SMALLEST:
            raise InputError(
                f"{self.name} halves an image four times and needs at least {SMALLEST} px a side, "
                f"but these images have {x.shape[2]} × {x.shape[3]} px."
            )
        return super().maps(x)

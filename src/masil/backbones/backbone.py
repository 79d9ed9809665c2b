"""What every backbone is: pixels in, non-negative activations out, and a name under which both can be found again."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.data import Framing
from masil.errors import InputError
from masil.hardware import prepare

Triple = tuple[float, float, float]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762)


class Backbone(nn.Module, ABC):
    """The map f from pixels to activations a = f(x) >= 0, pooled over the last feature map.

    `framing` says how a picture becomes the square the backbone expects, `mean` and `std` how its pixels, scaled to
    [0, 1], are normalised per channel, `features` how many activations come out. Other sizes than `framing.crop` work
    too, wherever the architecture allows them.
    """

    name: str
    framing: Framing
    mean: Triple
    std: Triple
    features: int

    def __init__(self, name: str, features: int, framing: Framing, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        prepare()  # before the first network runs: some processors announce instructions that kill the process
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise InputError(f"Normalisation needs three means and three positive deviations, not {mean} and {std}.")
        self.name = name
        self.features = features
        self.framing = framing
        self.mean = (float(mean[0]), float(mean[1]), float(mean[2]))
        self.std = (float(std[0]), float(std[1]), float(std[2]))
        # (x − mean) / std = x · (1/std) + (−mean/std): one multiplication and one addition per pixel.
        scale = 1 / torch.tensor(self.std).reshape(1, 3, 1, 1)
        self.register_buffer("_scale", scale, persistent=False)
        self.register_buffer("_shift", -torch.tensor(self.mean).reshape(1, 3, 1, 1) * scale, persistent=False)

    @abstractmethod
    def maps(self, x: Tensor) -> Tensor:
        """Give the last feature map [n d h w] of normalised pixels, >= 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Give the activations [n d] of normalised pixels, >= 0: the mean over the last feature map."""
        return functional.adaptive_avg_pool2d(self.maps(x), 1).flatten(1)

    def preprocess(self, pixels: Tensor) -> Tensor:
        """Normalise uint8 [n 3 h w], or float in [0, 1], on the device and in the type and layout of the weights."""
        if pixels.ndim != 4 or pixels.shape[1] != 3:
            raise InputError(f"Pixels must have the shape [n 3 h w], but have {tuple(pixels.shape)}.")
        if pixels.dtype != torch.uint8 and not pixels.is_floating_point():
            raise InputError(f"Pixels must be uint8, or float in [0, 1], but are {pixels.dtype}.")
        scale, shift = self.get_buffer("_scale"), self.get_buffer("_shift")
        x = pixels.to(scale.device, scale.dtype, memory_format=self.memory_format)
        return x * (scale / 255 if pixels.dtype == torch.uint8 else scale) + shift

    @property
    def memory_format(self) -> torch.memory_format:
        """Say in which layout the weights are kept, and so in which one the pixels should come."""
        for weight in self.parameters():
            if weight.ndim == 4 and not weight.is_contiguous():
                return torch.channels_last
        return torch.contiguous_format

    @property
    def slug(self) -> str:
        """The name as a part of file names."""
        return re.sub(r"[^\w.-]+", "_", self.name)

    def config(self) -> dict[str, Any]:
        """Give the plain values from which `create(**config)` rebuilds the architecture; the weights are not in it."""
        return {
            "name": self.name,
            "framing": [self.framing.resize, self.framing.crop],
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def fingerprint(self) -> str:
        """Give a checksum of weights and configuration; two backbones that share it compute the same activations."""
        state = hashlib.sha256(json.dumps(self.config(), sort_keys=True).encode())
        for key, value in sorted(self.state_dict().items()):
            if not key.endswith("num_batches_tracked"):  # counts training steps, changes no activation
                state.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
                state.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return state.hexdigest()


@dataclass(frozen=True)
class Plan:
    """How a convolutional network is laid out, and the images it was made for; each architecture adds its layers."""

    framing: Framing
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD


class ConvNet(Backbone):
    """A convolutional network that masil builds itself, with `width` times its plan's channels.

    Convolutions are drawn from `seed` (He-normal, fan-out); batch norms start as the identity.
    """

    def __init__(
        self, name: str, plan: Any, width: float = 1.0, seed: int = 0, framing: Framing | None = None,
        mean: Sequence[float] | None = None, std: Sequence[float] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, 0, framing or plan.framing, mean=mean or plan.mean, std=std or plan.std)
        self.width = float(width)
        with torch.random.fork_rng(devices=[]):  # layers draw from the global generator when they are built
            self.features = self.build(plan)
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()

    @abstractmethod
    def build(self, plan: Any) -> int:
        """Make the layers, and give the number of features that come out."""

    @abstractmethod
    def stem(self, x: Tensor) -> Tensor:
        """Run what comes before the blocks."""

    @abstractmethod
    def sections(self) -> list[list[nn.Module]]:
        """Give the blocks of every stage; one after another, behind the stem, they give the last feature map.

        The blocks of a stage have maps of one size. Layers behind the last block are counted with it.
        """

    def scaled(self, channels: int, wider: float = 1.0) -> int:
        """Give `width` times `wider` times as many channels, in steps of eight."""
        if self.width <= 0:
            raise InputError(f"The width multiplier must be positive, but is {self.width:g}.")
        return max(8, 8 * int(channels * (wider * self.width) / 8 + 0.5))

    def config(self) -> dict[str, Any]:
        """Add the width multiplier."""
        return {**super().config(), "width": self.width}

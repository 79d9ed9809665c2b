"""Networks of any kind as frozen backbones: a `torch.nn.Module` (timm's, torchvision's, yours), or several as one."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone
from masil.data import Framing
from masil.errors import InputError, lookup
from masil.hardware import prepare

PREFIX = "module:"  # of the names of such backbones: `create` cannot rebuild them from a name


def keep(a: Tensor) -> Tensor:
    """Leave a [n d …] as it is: it is promised to be >= 0."""
    return a


def split(a: Tensor) -> Tensor:
    """Give [relu(a), relu(−a)], [n 2d …]. Nothing is lost: the difference of the halves is a."""
    return torch.cat((torch.relu(a), torch.relu(-a)), 1)


# How signed activations [n d …] become non-negative ones, which is all that concepts can be made of.
NON_NEGATIVE: dict[str, Callable[[Tensor], Tensor]] = {"keep": keep, "relu": functional.relu, "split": split}


def way_to_non_negative(way: str, on_noise: Tensor, name: str) -> Callable[[Tensor], Tensor]:
    """Look up a way, and refuse "keep" for a model that gives negative activations on noise already."""
    function = lookup("way to make activations non-negative", way, NON_NEGATIVE)
    if way == "keep" and float(on_noise.min()) < 0:
        raise InputError(
            f"The module '{name}' gives negative activations ({float(on_noise.min()):.3g} on noise), but concepts need "
            "activations >= 0. Choose non_negative='relu', which cuts them off, or 'split', which keeps both signs."
        )
    return function


@final
class ModuleBackbone(Backbone):
    """A module that maps normalised pixels to pooled activations [n d] or to a feature map [n d h w], frozen.

    Concepts need activations >= 0. `non_negative` says how they become so: "keep" trusts the module's last operation
    (a ReLU, say) and refuses it if noise already gives negative values, "relu" cuts off at zero, "split" gives
    [relu(a), relu(−a)] and twice the features. A feature map is treated so before it is averaged.

    The module itself is used, not a copy: it is set to evaluation mode and its weights stop asking for gradients.
    Stored activations are found again by its weights, its printed layers and `name`: give modules that differ in code
    alone different names.
    """

    def __init__(
        self, module: nn.Module, framing: Framing, *, name: str = "custom", mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD, non_negative: str = "keep",
    ) -> None:  # fmt: skip
        out = _try_on_noise(module.eval().requires_grad_(False), framing, name)
        to_non_negative = way_to_non_negative(non_negative, out, name)
        super().__init__(PREFIX + name, to_non_negative(out).shape[1], framing, mean=mean, std=std)
        self.module = module
        self.non_negative = non_negative
        self._to_non_negative = to_non_negative

    def maps(self, x: Tensor) -> Tensor:
        """Give the module's feature map; pooled activations are a map of one place."""
        out: Tensor = self.module(x)
        return self._to_non_negative(out if out.ndim == 4 else out[:, :, None, None])

    def config(self) -> dict[str, Any]:
        """Describe the module, so that its fingerprint is its own; nobody else can rebuild it."""
        drawing = hashlib.sha256(repr(self.module).encode()).hexdigest()[:16]
        kind = f"{type(self.module).__module__}.{type(self.module).__qualname__}"
        return {**super().config(), "non_negative": self.non_negative, "module": kind, "layers": drawing}


def noise_images(framing: Framing) -> Tensor:
    """Give two images of normal noise [2 3 h w], the same every time, to see what a model gives."""
    return torch.randn(2, 3, framing.crop, framing.crop, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _try_on_noise(module: nn.Module, framing: Framing, name: str) -> Tensor:
    """Give the module's output for two noise images, or say what is wrong with it."""
    prepare()  # this network runs before there is a backbone
    weight = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    noise = noise_images(framing).to(weight)
    try:
        out = module(noise)
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise InputError(
            f"The module '{name}' does not take images of shape {list(noise.shape)}: {str(error).strip() or error!r}"
        ) from error
    if not isinstance(out, Tensor):
        raise InputError(
            f"The module '{name}' gives a {type(out).__name__}, not a tensor. Wrap it in a module that returns the "
            "pooled activations [n d] or the feature map [n d h w]."
        )
    if out.ndim not in (2, 4) or len(out) != len(noise):
        raise InputError(
            f"The module '{name}' gives the shape {list(out.shape)} for {len(noise)} images; a backbone gives pooled "
            "activations [n d] or a feature map [n d h w]."
        )
    if not bool(out.isfinite().all()):
        raise InputError(f"The module '{name}' gives activations that are not finite on noise; are its weights sound?")
    return out


JOINT = "+"  # between the names


@final
class SeveralBackbones(Backbone):
    """The activations of two or more backbones side by side; "a+b" names one made of the backbones a and b.

    A picture is decoded and framed once, as the part with the largest square expects it, and every part sees that
    square. So it costs what its parts cost together, and a part made for smaller squares costs more than alone:
    EfficientNet-Lite0 on the 260 px of Lite2 takes (260 / 224)², 1.35 times as long as on its own 224 px. Everything
    that grows with the number of features grows, too: "efficientnet_lite0+efficientnet_lite2" has 2,560 of them, so
    that class vectors take twice, and a d × d map four times the memory.
    """

    def __init__(self, parts: Sequence[Backbone], *, framing: Framing | None = None) -> None:
        if len(parts) < 2:
            raise InputError(f"Several backbones are at least two, but there are {len(parts)}.")
        largest = max((part.framing for part in parts), key=lambda framing: framing.crop)
        # Each part normalises the pixels itself; here they are only scaled to [0, 1].
        name = JOINT.join(part.name for part in parts)
        features = sum(part.features for part in parts)
        super().__init__(name, features, framing or largest, mean=(0, 0, 0), std=(1, 1, 1))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Give the activations of every part, [n d₁ + d₂ + …]."""
        return torch.cat([part(part.preprocess(x)) for part in self.members()], 1)

    def maps(self, x: Tensor) -> Tensor:
        """Give the last feature map of every part, brought to the size of the largest."""
        maps = [part.maps(part.preprocess(x)) for part in self.members()]
        size = max(m.shape[2] for m in maps), max(m.shape[3] for m in maps)
        return torch.cat([m if m.shape[2:] == size else functional.interpolate(m, size) for m in maps], 1)

    def config(self) -> dict[str, Any]:
        """Give the name, the framing, and the configuration of every part."""
        framing = [self.framing.resize, self.framing.crop]
        return {"name": self.name, "framing": framing, "parts": [part.config() for part in self.members()]}

    def members(self) -> list[Backbone]:
        """Give the backbones that it is made of."""
        return [part for part in self.parts if isinstance(part, Backbone)]

"""Backbones by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from masil.backbones.backbone import Backbone
from masil.backbones.efficientnet import EfficientNetLite
from masil.backbones.module import PREFIX
from masil.backbones.resnet import PLANS, ResNet
from masil.backbones.resnet12 import ResNet12
from masil.backbones.transformers_adapter import rebuild
from masil.backbones.weights import load_weights
from masil.data import Framing
from masil.errors import InputError, lookup, suggest
from masil.registry import Registry

OWN: dict[str, Callable[..., Backbone]] = {
    "resnet12": partial(ResNet12, "resnet12"),
    "resnet12_512": partial(ResNet12, "resnet12_512"),
    "resnet18": partial(ResNet, "resnet18", PLANS["resnet18"]),
    "resnet18_cifar": partial(ResNet, "resnet18_cifar", PLANS["resnet18_cifar"]),
    "resnet20": partial(ResNet, "resnet20", PLANS["resnet20"]),
    "efficientnet_lite0": partial(EfficientNetLite, "efficientnet_lite0"),
    "efficientnet_lite1": partial(EfficientNetLite, "efficientnet_lite1"),
    "efficientnet_lite2": partial(EfficientNetLite, "efficientnet_lite2"),
    "transformers": rebuild,
}
BACKBONES: Registry[Callable[..., Backbone]] = Registry("masil.backbones", OWN)


def create(
    name: str,
    *,
    weights: str | Path | None = None,
    framing: Framing | Sequence[int] | None = None,
    **options: Any,
) -> Backbone:
    """Build the backbone called `name`, in evaluation mode.

    `weights` is the path of a weight file, "imagenet" for weights that came with pip, or None for a random start.
    `options` are the factory's own: `width`, `seed`, `mean`, `std`, …
    """
    if name.startswith(PREFIX):
        raise InputError(
            f"'{name}' was made from a module of your own, which no name can rebuild; "
            "make the ModuleBackbone again and hand it over."
        )
    factory = lookup("backbone", name, BACKBONES)
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known:
            raise InputError(f"The backbone '{name}' has no option '{option}'; {suggest(option, known)}")
    square = framing if framing is None or isinstance(framing, Framing) else Framing(*framing)
    backbone = factory(framing=square, **options)
    if weights is not None:
        load_weights(backbone, weights)
    return backbone.eval()

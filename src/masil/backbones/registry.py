"""Backbones by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from masil.backbones import efficientnet, resnet, resnet12
from masil.backbones.backbone import Backbone, ConvNet
from masil.backbones.module import PREFIX
from masil.backbones.several import JOINT, SeveralBackbones
from masil.backbones.transformers import rebuild
from masil.backbones.weights import load_weights
from masil.data import Framing
from masil.errors import InputError, lookup, suggest
from masil.registry import Registry

NETWORKS: tuple[tuple[type[ConvNet], Mapping[str, Any]], ...] = (
    (resnet12.ResNet12, resnet12.PLANS), (resnet.ResNet, resnet.PLANS),
    (efficientnet.EfficientNetLite, efficientnet.PLANS),
)  # fmt: skip
OWN: dict[str, Callable[..., Backbone]] = {
    **{name: partial(kind, name, plan) for kind, plans in NETWORKS for name, plan in plans.items()},
    "transformers": rebuild,
}
BACKBONES: Registry[Callable[..., Backbone]] = Registry("masil.backbones", OWN)


def create(
    name: str, *, weights: str | Path | None = None, framing: Framing | Sequence[int] | None = None, **options: Any
) -> Backbone:
    """Build the backbone called `name`, in evaluation mode; "a+b" is the backbones a and b side by side.

    `weights` is the path of a weight file, "imagenet" for weights that came with pip, or None for a random start.
    `options` are the factory's own: `width`, `seed`, `mean`, `std`, …
    """
    square = framing if framing is None or isinstance(framing, Framing) else Framing(*framing)
    backbone = _several(name, square, **options) if JOINT in name else _single(name, square, **options)
    if weights is not None:
        load_weights(backbone, weights)
    return backbone.eval()


def can_rebuild(name: str) -> bool:
    """Say whether `create` knows a backbone, so that its configuration is enough to build it again."""
    return all(part in BACKBONES for part in name.split(JOINT))


def _single(name: str, framing: Framing | None, **options: Any) -> Backbone:
    if name.startswith(PREFIX):
        raise InputError(
            f"'{name}' was made from a module of your own, which no name can rebuild; "
            "make the ModuleBackbone again and hand it over."
        )
    factory = lookup("backbone", name, BACKBONES)
    known = inspect.signature(factory).parameters
    for option in options:
        if option not in known and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
            raise InputError(f"The backbone '{name}' has no option '{option}'; {suggest(option, known)}")
    return factory(framing=framing, **options)


def _several(
    name: str, framing: Framing | None, *, parts: Sequence[Mapping[str, Any]] | None = None, **options: Any
) -> Backbone:
    """Build every part by its name with the same options, or by its own configuration in `parts`."""
    configs = parts or [{"name": part, **options} for part in name.split(JOINT)]
    return SeveralBackbones([create(**config) for config in configs], framing=framing)

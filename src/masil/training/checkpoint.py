"""A checkpoint is one file, replaced at once: named tensors, and everything else as JSON in its header. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from masil.errors import InputError, StorageError
from masil.files import atomic_path
from masil.training.recipe import Recipe

FILE = "checkpoint.safetensors"
FORMAT = "masil base session 1"


@final
@dataclass(frozen=True)
class Checkpoint:
    """A base session with `step` steps of epoch `epoch` done. Random numbers follow from the seed and these two."""

    recipe: Recipe
    backbone: Mapping[str, Any]  # its config
    classes: int
    data: str  # which images, see `Batches.key`
    engine: Mapping[str, Any]  # device, precision, … under which it was made
    epoch: int
    step: int
    tensors: Mapping[str, Tensor]  # network.*, optimiser.*, average.*
    history: list[dict[str, Any]] = field(default_factory=list)
    running: Mapping[str, float] = field(default_factory=dict)  # sums over the steps of the current epoch
    averaged: int = 0  # how many steps the average has seen
    names: tuple[str, ...] | None = None  # of the classes, in the order of their labels; older checkpoints have none

    @property
    def finished(self) -> bool:
        """Say whether every epoch is done."""
        return self.epoch >= self.recipe.epochs

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Give the tensors under a prefix, without it."""
        return within(self.tensors, prefix)


def within(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Give the tensors whose names begin with a prefix and a dot, named without them."""
    start = f"{prefix}."
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; until it is whole and on the disk, the one before it stays."""
    described = {
        "recipe": checkpoint.recipe.to_json(),
        "backbone": dict(checkpoint.backbone),
        "classes": checkpoint.classes,
        "data": checkpoint.data,
        "engine": dict(checkpoint.engine),
        "epoch": checkpoint.epoch,
        "step": checkpoint.step,
        "history": checkpoint.history,
        "running": dict(checkpoint.running),
        "averaged": checkpoint.averaged,
        "names": checkpoint.names,
    }
    tensors = {key: value.detach().cpu().contiguous() for key, value in checkpoint.tensors.items()}
    target = folder / FILE
    with atomic_path(target) as part:
        save_file(tensors, part, {"format": FORMAT, "session": json.dumps(described)})
    return target


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in a folder, None if there is none; a damaged one is said to be, and left as it is."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no dict)
    except (SafetensorError, OSError) as error:
        raise StorageError(
            f"The checkpoint {path} cannot be read ({error}); it is damaged or truncated. "
            "Move it away, or start again with resume=False."
        ) from error
    if header.get("format") != FORMAT:
        raise StorageError(
            f"{path} is no checkpoint of this version of masil, but {header.get('format', 'of no format')}."
        )
    try:
        described = json.loads(header["session"])
        recipe = Recipe.from_json(described.pop("recipe"))
        names = described.pop("names", None)
        return Checkpoint(recipe=recipe, tensors=tensors, names=None if names is None else tuple(names), **described)
    except (KeyError, ValueError, TypeError, InputError) as error:
        raise StorageError(f"The checkpoint {path} holds a description that cannot be read ({error}).") from error


def check_fits(
    checkpoint: Checkpoint,
    recipe: Recipe,
    backbone: Mapping[str, Any],
    data: str,
    folder: Path,
    names: tuple[str, ...] | None = None,
) -> None:
    """Refuse a checkpoint of another backbone, recipe or set of images, or of classes with other names."""
    path = folder / FILE
    way_out = "Choose another folder, or start again with resume=False."
    if dict(checkpoint.backbone) != json.loads(json.dumps(dict(backbone))):
        there, here = _short(checkpoint.backbone), _short(backbone)
        raise StorageError(f"{path} is a checkpoint of another backbone: {there} there, {here} here. {way_out}")
    if different := recipe.differences(checkpoint.recipe):
        raise StorageError(f"{path} is a checkpoint of another recipe ({'; '.join(different[:3])}). {way_out}")
    if checkpoint.data != data:
        raise StorageError(f"{path} was trained on other images, labels or image sizes than these. {way_out}")
    for label, (there, here) in enumerate(zip(checkpoint.names or (), names or (), strict=False)):
        if there != here:
            raise StorageError(f"In {path} class {label} is called '{there}', here '{here}'. {way_out}")


def fill(module: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Load named tensors into a module, all or nothing."""
    wanted = {key: value.shape for key, value in module.state_dict().items()}
    found = {key: value.shape for key, value in state.items()}
    if wanted != found:
        odd = next(key for key in [*wanted, *found] if wanted.get(key) != found.get(key))
        raise StorageError(f"{path} does not fit: {odd} is {found.get(odd)} there and {wanted.get(odd)} here.")
    module.load_state_dict(dict(state))


def finite(tensors: Mapping[str, Tensor]) -> bool:
    """Say whether every number is one."""
    return all(bool(torch.isfinite(value).all()) for value in tensors.values() if value.is_floating_point())


def _short(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {config[key]}" for key in ("name", "width") if key in config)

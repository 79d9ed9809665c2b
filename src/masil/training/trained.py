"""What a base session leaves: checkpoints while it lasts, and the trained backbone at its end.

A checkpoint is one file, replaced at once: named tensors, and everything else as JSON in its header. No pickle.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from masil.backbones import JOINT, Backbone, SeveralBackbones, create
from masil.collapse import Projection
from masil.errors import InputError, StorageError
from masil.storage import TensorFormat, read_tensors, write_tensors
from masil.training.recipe import Recipe

Row = dict[str, Any]  # what is known of an epoch
FILE = "checkpoint.safetensors"
AWAY = "Move it away, or choose another folder,"
FORM = TensorFormat("masil base session", 1, "checkpoint", f"{AWAY} to train it anew.")


@final
@dataclass(frozen=True)
class Checkpoint:
    """A base session with `step` steps of epoch `epoch` done. Random numbers follow from the seed and these two."""

    recipe: Recipe
    backbone: dict[str, Any]  # its config
    classes: int
    data: str  # which images, see `Batches.key`
    engine: dict[str, Any]  # device, precision, … under which it was made
    epoch: int
    step: int
    tensors: Mapping[str, Tensor]  # network.*, optimiser.*, average.*
    history: list[Row] = field(default_factory=list)
    running: dict[str, float] = field(default_factory=dict)  # sums over the steps of the current epoch
    averaged: int = 0  # how many steps the average has seen
    names: tuple[str, ...] | None = None  # of the classes, in the order of their labels; older checkpoints have none

    @property
    def finished(self) -> bool:
        """Say whether every epoch is done."""
        return self.epoch >= self.recipe.epochs

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Give the tensors whose names begin with a prefix and a dot, named without them."""
        start = f"{prefix}."
        return {key.removeprefix(start): value for key, value in self.tensors.items() if key.startswith(start)}

    @property
    def kept(self) -> str:
        """The prefix of the weights that are kept at the end: the average, where there is one."""
        return "average" if self.part("average") else "network"

    def finite(self) -> bool:
        """Say whether every weight of the network is a number."""
        weights = self.part("network").values()
        return all(bool(torch.isfinite(value).all()) for value in weights if value.is_floating_point())


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint; until it is whole and on the disk, the one before it stays."""
    values = {entry.name: getattr(checkpoint, entry.name) for entry in fields(checkpoint) if entry.name != "tensors"}
    write_tensors(folder / FILE, FORM, values | {"recipe": checkpoint.recipe.to_json()}, checkpoint.tensors)
    return folder / FILE


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the checkpoint in a folder, None if there is none; a damaged one is said to be, and left as it is."""
    path = folder / FILE
    if not path.exists():
        return None
    values, tensors = read_tensors(path, FORM, older="session")
    try:
        recipe, names = Recipe.from_json(values.pop("recipe")), values.pop("names", None)
        return Checkpoint(recipe=recipe, tensors=tensors, names=None if names is None else tuple(names), **values)
    except (KeyError, TypeError, InputError) as error:
        raise StorageError(f"The checkpoint {path} holds a description that cannot be read ({error}).") from error


def check_fits(saved: Checkpoint, current: Checkpoint, path: Path) -> None:
    """Refuse a checkpoint of another backbone, recipe or set of images, or of classes with other names."""
    way_out = f"{AWAY} to begin anew."
    if saved.backbone != json.loads(json.dumps(current.backbone)):
        there, here = _short(saved.backbone), _short(current.backbone)
        raise StorageError(f"{path} is a checkpoint of another backbone: {there} there, {here} here. {way_out}")
    if different := current.recipe.differences(saved.recipe):
        raise StorageError(f"{path} is a checkpoint of another recipe ({'; '.join(different[:3])}). {way_out}")
    if saved.data != current.data:
        raise StorageError(f"{path} was trained on other images, labels or image sizes than these. {way_out}")
    for label, (there, here) in enumerate(zip(saved.names or (), current.names or (), strict=False)):
        if there != here:
            raise StorageError(f"In {path} class {label} is called '{there}', here '{here}'. {way_out}")


def fill(module: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Load named tensors into a module, all or nothing."""
    wanted = {key: value.shape for key, value in module.state_dict().items()}
    given = {key: value.shape for key, value in state.items()}
    if wanted != given:
        odd = next(key for key in [*wanted, *given] if wanted.get(key) != given.get(key))
        raise StorageError(f"{path} does not fit: {odd} is {given.get(odd)} there and {wanted.get(odd)} here.")
    module.load_state_dict(dict(state))


def _short(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {config[key]}" for key in ("name", "width") if key in config)


@final
@dataclass(frozen=True)
class Trained:
    """A trained backbone in evaluation mode, and the vectors of its k base classes.

    With a projection the class vectors are the frame's and live among its embeddings; without one they are learnt and
    live among the activations.
    """

    backbone: Backbone
    class_vectors: Tensor  # [k d]
    projection: Projection | None
    history: tuple[Row, ...]
    recipe: Recipe
    names: tuple[str, ...] | None = None  # of the classes, in the order of the vectors; older base sessions have none
    frame: Tensor | None = None  # [r d], with the vectors of classes to come, where the class vectors were fixed


def load_trained(folder: Path | str, backbone: Backbone | None = None) -> Trained:
    """Read a finished base session. A backbone of the user's own is given as it was to `train`.

    "a+b" is the base sessions in the folders a and b side by side: one encoder with the features of both.
    """
    folders = str(folder).split(JOINT)
    if len(folders) > 1 and not Path(folder).exists():
        if backbone is not None:
            raise InputError(f"A backbone of your own cannot take the weights of several base sessions, {folder}.")
        return _joined([load_trained(name) for name in folders], str(folder))
    checkpoint = _finished(Path(folder))
    return trained(checkpoint, create(**checkpoint.backbone) if backbone is None else backbone, Path(folder) / FILE)


def _joined(parts: Sequence[Trained], named: str) -> Trained:
    """Put base sessions of the same classes side by side; each class vector is the vectors of all parts in a row."""
    first, names = parts[0], {part.names for part in parts} - {None}
    if len({len(part.class_vectors) for part in parts}) > 1 or len(names) > 1:
        raise InputError(f"The base sessions of {named} are of different classes, so no encoder can be made of them.")
    if any(part.projection is not None or part.frame is not None for part in parts):
        raise InputError(
            f"The base sessions of {named} have projections or frames of their own, which cannot be joined; join those "
            "whose class vectors live among the activations."
        )
    return Trained(
        backbone=SeveralBackbones([part.backbone for part in parts]).eval().requires_grad_(False),
        class_vectors=torch.cat([part.class_vectors for part in parts], 1),
        projection=None,
        history=tuple(row for part in parts for row in part.history),
        recipe=replace(first.recipe, name=" and ".join(part.recipe.name for part in parts)),
        names=next(iter(names), None),
    )


def trained(checkpoint: Checkpoint, backbone: Backbone, source: Path) -> Trained:
    """Put the weights that the recipe keeps into `backbone` and give what was trained; no loss is needed."""
    kept = checkpoint.kept
    fill(backbone, checkpoint.part(f"{kept}.backbone"), source)
    head = checkpoint.part(f"{kept}.head")
    vectors = head.get("frame", head.get("vectors"))
    if vectors is None:
        raise StorageError(f"{source} holds no class vectors, neither a frame nor learnt ones.")
    projection = None
    if state := checkpoint.part(f"{kept}.head.projection"):
        projection = Projection(backbone.features, len(state["skip.weight"]))
        fill(projection, state, source)
        projection.eval().requires_grad_(False)
    return Trained(
        backbone=backbone.eval().requires_grad_(False),
        class_vectors=vectors[: checkpoint.classes].float(),
        frame=head["frame"].float() if "frame" in head else None,
        projection=projection,
        history=tuple(checkpoint.history),
        recipe=checkpoint.recipe,
        names=checkpoint.names,
    )


def compact(folder: Path | str, target: Path | str) -> Path:
    """Copy a finished base session to another folder, in half precision and without what only training needs.

    `load_trained` reads it as it does the original, at a quarter of the size or less.
    """
    checkpoint = _finished(Path(folder))
    tensors = {
        f"network.{key}": value.half() if value.is_floating_point() else value
        for key, value in checkpoint.part(checkpoint.kept).items()
    }
    return write_checkpoint(Path(target), replace(checkpoint, tensors=tensors, running={}, averaged=0))


def _finished(folder: Path) -> Checkpoint:
    checkpoint = read_checkpoint(folder)
    if checkpoint is None:
        raise StorageError(f"There is no base session in {folder}: the file {FILE} is missing.")
    if not checkpoint.finished:
        raise StorageError(
            f"The base session in {folder} has done {checkpoint.epoch} of {checkpoint.recipe.epochs} epochs; "
            "train again with the same folder to finish it."
        )
    return checkpoint

"""What a base session gives, and how it is read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from safetensors.torch import save_file
from torch import Tensor

from masil.backbones import Backbone, create
from masil.collapse import Projection
from masil.errors import StorageError
from masil.files import atomic_path
from masil.training.batches import TURNS, seeded
from masil.training.checkpoint import FILE, Checkpoint, fill, read_checkpoint, within, write_checkpoint
from masil.training.history import Row
from masil.training.loss import BaseLoss, make_loss
from masil.training.recipe import Recipe


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
    """Read a finished base session. A backbone of the user's own is given as it was to `train`."""
    checkpoint = _finished(Path(folder))
    return trained(checkpoint, create(**checkpoint.backbone) if backbone is None else backbone, Path(folder) / FILE)


def trained(checkpoint: Checkpoint, backbone: Backbone, source: Path) -> Trained:
    """Put the weights that the recipe keeps into `backbone` and give what was trained; no loss is needed."""
    kept = checkpoint.part("average") or checkpoint.part("network")
    fill(backbone, within(kept, "backbone"), source)
    head = within(kept, "head")
    vectors = head.get("frame", head.get("vectors"))
    if vectors is None:
        raise StorageError(f"{source} holds no class vectors, neither a frame nor learnt ones.")
    return Trained(
        backbone=backbone.eval().requires_grad_(False),
        class_vectors=vectors[: checkpoint.classes].float(),
        frame=head["frame"].float() if "frame" in head else None,
        projection=_projection(within(head, "projection"), backbone.features, source),
        history=tuple(checkpoint.history),
        recipe=checkpoint.recipe,
        names=checkpoint.names,
    )


def _projection(state: Mapping[str, Tensor], features: int, source: Path) -> Projection | None:
    if not state:
        return None
    projection = Projection(features, len(state["skip.weight"]))
    fill(projection, state, source)
    return projection.eval().requires_grad_(False)


def built_loss(features: int, classes: int, recipe: Recipe) -> BaseLoss:
    """Make the loss of a recipe for all classes that are trained, its random start drawn from the recipe's seed."""
    loss = make_loss(recipe.loss)
    count = TURNS * classes if recipe.rotated else loss.virtual_classes(classes)
    return loss.build(features, count, seeded(recipe.seed, "head"))


def save_weights(backbone: Backbone, path: Path, half: bool = True) -> None:
    """Write weights that `masil.backbones.load_weights` reads, as safetensors, by default in half precision."""
    state: Mapping[str, Tensor] = backbone.state_dict()
    kept = {key: _halved(value) if half else value.detach().cpu().contiguous() for key, value in state.items()}
    with atomic_path(path) as part:
        save_file(kept, part, {"backbone": backbone.name})


def compact(folder: Path | str, target: Path | str) -> Path:
    """Copy a finished base session to another folder, in half precision and without what only training needs.

    `load_trained` reads it as it does the original, at a quarter of the size or less.
    """
    checkpoint = _finished(Path(folder))
    state = checkpoint.part("average") or checkpoint.part("network")
    tensors = {f"network.{key}": _halved(value) for key, value in state.items()}
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


def _halved(value: Tensor) -> Tensor:
    value = value.detach().cpu().contiguous()
    return value.half() if value.is_floating_point() else value

"""Training images, held once as uint8, and the batches made of them: a pure function of seed, epoch and step."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from masil.data import Augmentation, Framing, Images, augment, cutmix, mixup
from masil.errors import DataError, InputError
from masil.training.loss import make_loss
from masil.training.recipe import Mixing, Recipe


class Batch(NamedTuple):
    """Pixels in [0, 1] and their labels; without mixing, lam is 1."""

    pixels: Tensor  # float [n 3 px px]
    labels: Tensor  # int64 [n]
    partners: Tensor  # int64 [n]
    lam: Tensor  # float [n]


@final
class Batches:
    """The images of a base session on the training device, without those held out."""

    def __init__(self, images: Images, recipe: Recipe, side: int, device: torch.device) -> None:
        self.recipe = recipe
        self.loss = make_loss(recipe.loss)  # for its views
        self.device = device
        self.classes = count_classes(images)
        self.key = _key(images, side)
        training, held_out = _split(images.labels, recipe.watch.holdout, recipe.seed)
        self.pixels, self.labels = _loaded(images.subset(training), side, device)
        self.held_out = _loaded(images.subset(held_out), side, device)
        self.watched = self._watched(recipe.watch.nc_images)
        self.batch = min(recipe.batch, len(self.labels))
        self.steps = len(self.labels) // self.batch  # what does not fill a batch waits for another epoch

    def __call__(self, epoch: int, step: int, order: Tensor) -> Batch:
        """Make batch `step` of an epoch, in that epoch's `order`: turned, augmented, made views of, mixed."""
        recipe, px = self.recipe, self.recipe.pixels(epoch)
        rows = order[step * self.batch : (step + 1) * self.batch].to(self.device)
        generator = seeded(recipe.seed, "batch", epoch, step)
        pixels, labels = self.pixels[rows], self.labels[rows]
        if recipe.rotated:
            pixels, labels = turned(pixels, labels, recipe.rotated, self.classes, generator)
        pixels = augment(pixels, recipe.augmentation, px, generator)
        pixels, labels = self.loss.views(pixels, labels, self.classes, generator)
        return mixed(pixels, labels, recipe.mixing, generator)

    def order(self, epoch: int) -> Tensor:
        """Give the order of the images in an epoch."""
        return torch.randperm(len(self.labels), generator=seeded(self.recipe.seed, "order", epoch))

    def plain(self, pixels: Tensor, px: int) -> Tensor:
        """Give images as they are, at another size."""
        return augment(pixels.to(self.device), Augmentation(), px, seeded(0, "plain"))

    def _watched(self, per_class: int) -> Tensor:
        """Give the positions of the first images of each class, on which collapse is measured."""
        chosen = [(self.labels == label).nonzero().flatten()[:per_class] for label in range(self.classes)]
        return torch.cat(chosen)


TURNS = 4  # of a class, the upright one included


def turned(
    pixels: Tensor, labels: Tensor, share: float, classes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Turn a share of the images by q = 1, 2 or 3 quarters; they become a virtual class, q · classes + label."""
    n = len(labels)
    chosen = torch.rand(n, generator=generator) < share
    quarters = torch.where(chosen, torch.randint(1, TURNS, (n,), generator=generator), 0).to(labels.device)
    result = pixels.clone()
    for quarter in range(1, TURNS):
        rows = quarters == quarter
        result[rows] = pixels[rows].rot90(quarter, (2, 3))
    return result, labels + quarters * classes


def seeded(seed: int, *parts: str | int) -> torch.Generator:
    """Give a generator of its own for each purpose, epoch and step: a resumed run draws what an unbroken one draws."""
    text = "/".join(map(str, (seed, *parts)))
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return torch.Generator().manual_seed(number % 2**63)


def mixed(pixels: Tensor, labels: Tensor, mixing: Mixing, generator: torch.Generator) -> Batch:
    """Blend or paste the whole batch, as often as `mixing` says."""
    draw = float(torch.rand((), generator=generator))
    if draw < mixing.mixup:
        result = mixup(pixels, mixing.mixup_alpha, generator)
    elif draw < mixing.mixup + mixing.cutmix:
        result = cutmix(pixels, mixing.cutmix_alpha, generator)
    else:
        return Batch(pixels, labels, labels, torch.ones(len(labels), device=labels.device))
    return Batch(result.images, labels, labels[result.partner], result.lam)


def count_classes(images: Images) -> int:
    """Count the base classes, refusing labels with gaps and classes that cannot vary."""
    if len(images) == 0:
        raise DataError("There are no images to train on.")
    found, counts = torch.unique(images.labels, return_counts=True)
    k = len(found)
    if found.tolist() != list(range(k)):
        raise InputError(
            f"The labels of a base session must be 0 … k − 1 without gaps, but the {k} classes here have labels from "
            f"{int(found[0])} to {int(found[-1])}; relabel the images of the base classes."
        )
    if k < 2:
        raise InputError("There is only one class; a base session needs at least 2.")
    if int(counts.min()) < 2:
        label = int(counts.argmin())
        only = images.name(int((images.labels == label).nonzero()[0]))
        raise DataError(
            f"Class {label} has one image ({only}), but the base session needs at least 2 of each class. "
            "Add one, or leave the class for a later session."
        )
    return k


def read_names(names: Sequence[str], classes: int) -> tuple[str, ...]:
    """Check the names of classes 0, 1, …: one for each, and no two alike."""
    found = tuple(names)
    if len(found) != classes:
        raise InputError(f"{len(found)} names were given for {classes} classes; label i is the class `names[i]`.")
    if twice := [name for place, name in enumerate(found) if name in found[:place]]:
        raise InputError(f"Two classes are called '{twice[0]}'; each needs a name of its own.")
    return found


def _split(labels: Tensor, holdout: int, seed: int) -> tuple[Tensor, Tensor]:
    """Hold `holdout` images of each class out, drawn from the seed; give the positions of the others and of these."""
    order = torch.randperm(len(labels), generator=seeded(seed, "holdout"))
    held: list[Tensor] = [order[:0]]
    for label in range(int(labels.max()) + 1 if holdout else 0):
        own = order[labels[order] == label]
        if len(own) - holdout < 2:
            raise DataError(
                f"Class {label} has {len(own)} images; with {holdout} held out fewer than 2 are left. Lower `holdout`."
            )
        held.append(own[:holdout])
    out = torch.cat(held).sort().values
    kept = torch.ones(len(labels), dtype=torch.bool)
    kept[out] = False
    return kept.nonzero().flatten(), out


def _loaded(images: Images, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Decode all images once."""
    return images.load(slice(None), Framing(side, side)).to(device), images.labels.to(device)


def _key(images: Images, side: int) -> str:
    """Name the images, their labels and their size, so that a checkpoint knows what it was trained on."""
    state = hashlib.sha256(f"{images.fingerprint()} {side} ".encode())
    state.update(images.labels.numpy().tobytes())
    return state.hexdigest()

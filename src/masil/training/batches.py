"""Training images, held once as uint8, and the batches made of them: a pure function of seed, epoch and step."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from masil.data import Augmentation, Framing, Images, augment, cutmix, mixup
from masil.errors import DataError, InputError
from masil.protocol import first_of_each, hold_out_count
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
        key = hashlib.sha256(f"{images.fingerprint()} {side} ".encode() + images.labels.numpy().tobytes())
        self.key = key.hexdigest()  # names images, labels and size, so that a checkpoint knows what it was trained on
        training, held_out = hold_out_count(images.labels, recipe.watch.holdout, seeded(recipe.seed, "holdout"))
        self.pixels, self.labels = _loaded(images.subset(training), side, device)
        self.held_out = _loaded(images.subset(held_out), side, device)
        self.watched = first_of_each(images.labels[training], recipe.watch.nc_images)  # for measures of collapse
        self.batch = min(recipe.batch, len(self.labels))
        self.steps = len(self.labels) // self.batch  # what does not fill a batch waits for another epoch

    def __call__(self, epoch: int, step: int, order: Tensor) -> Batch:
        """Make batch `step` of an epoch, in that epoch's `order`: turned, augmented, made views of, mixed."""
        recipe, px = self.recipe, self.recipe.pixels(epoch)
        rows = order[step * self.batch : (step + 1) * self.batch].to(self.device)
        generator = seeded(recipe.seed, "batch", epoch, step)
        pixels, labels = self.pixels[rows], self.labels[rows]
        if recipe.rotated:
            pixels, labels = turned(pixels, labels, recipe.rotated, self.classes, generator=generator)
        pixels = augment(pixels, recipe.augmentation, px, generator)
        pixels, labels = self.loss.views(pixels, labels, self.classes, generator)
        return mixed(pixels, labels, recipe.mixing, generator)

    def order(self, epoch: int) -> Tensor:
        """Give the order of the images in an epoch."""
        return torch.randperm(len(self.labels), generator=seeded(self.recipe.seed, "order", epoch))

    def plain(self, pixels: Tensor, px: int) -> Tensor:
        """Give images as they are, at another size."""
        return augment(pixels.to(self.device), Augmentation(), px, seeded(0, "plain"))


TURNS = 4  # of a class, the upright one included


def turned(
    pixels: Tensor, labels: Tensor, share: float, classes: int, *, generator: torch.Generator
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
    labels, counts = torch.unique(images.labels, return_counts=True)
    k = len(labels)
    if labels.tolist() != list(range(k)):
        raise InputError(
            f"The labels of a base session must be 0 … k − 1 without gaps, but the {k} classes here have labels from "
            f"{int(labels[0])} to {int(labels[-1])}; relabel the images of the base classes."
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
    if len(names) != classes:
        raise InputError(f"{len(names)} names were given for {classes} classes; label i is the class `names[i]`.")
    if twice := [name for position, name in enumerate(names) if name in names[:position]]:
        raise InputError(f"Two classes are called '{twice[0]}'; each needs a name of its own.")
    return tuple(names)


def _loaded(images: Images, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Decode all images once."""
    return images.load(slice(None), Framing(side, side)).to(device), images.labels.to(device)

"""The network that is trained: a backbone and its loss, the mean of its weights, and what is measured on it."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, update_bn

from masil.backbones import Backbone
from masil.collapse import nc_measures
from masil.errors import InputError
from masil.training.batches import TURNS, Batches, seeded
from masil.training.loss import BaseLoss, make_loss
from masil.training.recipe import Average, Recipe

LOG = logging.getLogger(__name__)
CHUNK = 256  # images at once


@final
class Network(nn.Module):
    """A backbone and its loss as one module, which is what a distributed wrapper wants to see."""

    def __init__(self, backbone: Backbone, loss: BaseLoss) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = loss  # the name that checkpoints have for it
        # A function, not a module: compiled or not, the parameters keep one name each.
        self.run: Callable[[Tensor], Tensor] = backbone.forward
        self.cast: torch.dtype | None = None

    def forward(self, x: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the loss of normalised pixels [n c h w]."""
        with torch.autocast(x.device.type, self.cast, enabled=self.cast is not None):
            activations = self.run(x)
        seen = (x,) if self.head.needs_pixels else ()
        loss: Tensor = self.head(activations.float(), labels, partners, lam, *seen)
        return loss


def make_network(backbone: Backbone, classes: int, recipe: Recipe) -> Network:
    """Put a recipe's loss, built for all classes that are trained, on a backbone; its random start follows the seed."""
    loss = make_loss(recipe.loss)
    count = TURNS * classes if recipe.rotated else loss.virtual_classes(classes)
    return Network(backbone, loss.build(backbone.features, count, seeded(recipe.seed, "head")))


def make_average(network: Network, settings: Average) -> AveragedModel:
    """Give the exponential or the plain mean of a network's weights and running statistics, as a network of its own."""

    def moved(mean: Tensor, present: Tensor, count: Tensor | int) -> Tensor:
        if not mean.is_floating_point():
            return present
        weight = 1 / (int(count) + 1)  # all present so far count the same
        if settings.kind == "ema":
            weight = max(weight, 1 - settings.decay)  # the first steps are averaged plainly, not begun from zero
        return mean.lerp(present, weight)

    return AveragedModel(network, avg_fn=moved, use_buffers=True).requires_grad_(False)


@torch.no_grad()
def refresh(backbone: Backbone, pixels: Iterable[Tensor]) -> None:
    """Estimate the batch norms of averaged weights from batches: the mean of statistics is not that of the mean."""
    update_bn(map(backbone.preprocess, pixels), backbone)
    backbone.eval()


@torch.no_grad()
def activations(network: Network, batches: Batches, pixels: Tensor, px: int) -> Tensor:
    """Give the activations [n d] of uint8 images in evaluation mode."""
    network.eval()
    backbone = network.backbone
    with torch.autocast(batches.device.type, network.cast, enabled=network.cast is not None):
        chunks = (backbone.preprocess(batches.plain(chunk, px)) for chunk in torch.split(pixels, CHUNK))
        return torch.cat([backbone(chunk).float() for chunk in chunks])


@torch.no_grad()
def measure(network: Network, batches: Batches, px: int, collapse: bool) -> dict[str, Any]:
    """Give held-out accuracy, where images are held out, and, if asked, NC1–NC4 on some training images."""
    row: dict[str, Any] = {}
    vectors = network.head.class_vectors(batches.classes)
    pixels, labels = batches.held_out
    if len(labels):
        embedded = network.head.embed(activations(network, batches, pixels, px))
        cosines = functional.normalize(embedded) @ functional.normalize(vectors).T
        row["accuracy"] = float((cosines.argmax(1) == labels).double().mean())
    if collapse:
        embedded = network.head.embed(activations(network, batches, batches.pixels[batches.watched], px))
        try:
            row |= asdict(nc_measures(embedded, batches.labels[batches.watched], vectors))
        except InputError as error:
            LOG.warning("Collapse was not measured: %s", error)
    return row

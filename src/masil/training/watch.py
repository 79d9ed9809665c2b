"""What is measured between epochs, on base training images as they are: held-out accuracy, and NC1–NC4."""

from __future__ import annotations

import logging
from dataclasses import asdict

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import nc_measures
from masil.errors import InputError
from masil.training.batches import Batches
from masil.training.history import Row
from masil.training.loss import Network

LOG = logging.getLogger(__name__)
CHUNK = 256  # images at once


@torch.no_grad()
def activations(network: Network, batches: Batches, pixels: Tensor, px: int) -> Tensor:
    """Give the activations [n d] of uint8 images in evaluation mode."""
    network.eval()
    found = []
    with torch.autocast(batches.device.type, network.cast, enabled=network.cast is not None):
        for chunk in torch.split(pixels, CHUNK):
            found.append(network.backbone(network.backbone.preprocess(batches.plain(chunk, px))).float())
    return torch.cat(found)


@torch.no_grad()
def measure(network: Network, batches: Batches, px: int, collapse: bool) -> Row:
    """Give held-out accuracy, where images are held out, and, if asked, NC1–NC4 on the watched training images."""
    row: Row = {}
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

"""How sure a cosine makes us: the temperature under which base images held out of the base session are likeliest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from scipy import optimize
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError
from masil.learner.labels import Label

DEFAULT = 16.0  # where no class has an image to spare
SHARE = 5  # one image in so many is held out
BOUNDS = (1.0, 1000.0)


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a learner says of n images: how likely each class is if it is one of these, and whether it is."""

    labels: tuple[Label, ...]
    probabilities: Tensor  # float64 [n k]
    known: Tensor | None  # float64 [n], at even odds; None where the model has not learnt to tell
    threshold: float = 0.0  # of `known`, below which an image is called unknown

    def probability_known(self) -> Tensor:
        """Give `known`, or say why there is none."""
        if self.known is None:
            raise InputError(
                "This model cannot tell what it was never taught: its base session was too small to learn that from "
                "(it takes 3 classes, and 3 images of several), or was saved before masil could; fit it again."
            )
        return self.known

    def rejected(self) -> Tensor:
        """Say of each image whether its class seems never to have been taught, bool [n]."""
        return self.probability_known() < self.threshold


def temperature(cosines: Tensor, labels: Tensor) -> float:
    """Give the factor s for which softmax(s · cosines [n k]) makes the labels [n] likeliest."""
    if not len(labels):
        return DEFAULT
    doubt = 1 / (len(labels) + 2)  # n right answers out of n are no proof of certainty (Laplace; Platt 1999)

    def surprise(log_scale: float) -> float:
        return float(functional.cross_entropy(math.exp(log_scale) * cosines.double(), labels, label_smoothing=doubt))

    low, high = (math.log(bound) for bound in BOUNDS)
    return math.exp(float(optimize.minimize_scalar(surprise, bounds=(low, high), method="bounded").x))


def hold_out(labels: Tensor, seed: int) -> Tensor:
    """Choose a fifth of each class's images, at least one of three, none of fewer; bool [n]."""
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in torch.unique(labels).tolist():
        rows = (labels == label).nonzero()[:, 0]
        away = max(1, len(rows) // SHARE) if len(rows) > 2 else 0
        held[rows[torch.randperm(len(rows), generator=generator)[:away]]] = True
    return held

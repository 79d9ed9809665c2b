"""The labelled images of a session, as activations to the power p."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from masil.learner.inputs import Label


@final
@dataclass(frozen=True, eq=False)
class Shots:
    """The labelled images of one session."""

    x: Tensor  # [n d], activations to the power p
    codes: Tensor  # int64 [n], the position of each image's class among `labels`
    labels: tuple[Label, ...]

    @property
    def counts(self) -> Tensor:
        """How many images each class has, int64 [k]."""
        return torch.bincount(self.codes, minlength=len(self.labels))

    def subset(self, keep: Tensor) -> Shots:
        """Give some of the images, by position or mask, of the same classes."""
        return replace(self, x=self.x[keep], codes=self.codes[keep])


def take_power(activations: Tensor, power: float) -> Tensor:
    """Give a^p for a >= 0, with the gradient 0 instead of infinite where a = 0."""
    if power == 1:
        return activations
    positive = activations > 0
    return torch.where(positive, torch.where(positive, activations, 1).pow(power), 0)

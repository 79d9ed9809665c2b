"""A mean of the weights along the way, which often does better than the last ones."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from masil.training.loss import Network
from masil.training.recipe import Average


@final
class WeightAverage:
    """The exponential or the plain mean of a network's weights and running statistics, as a network of its own."""

    def __init__(self, network: Network, settings: Average) -> None:
        self.settings = settings
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.count = 0

    @torch.no_grad()
    def update(self, network: Network) -> None:
        """Move towards the network's present weights: by 1 − decay, or so that all present so far count the same."""
        weight = 1 / (self.count + 1)
        if self.settings.kind == "ema":
            weight = max(weight, 1 - self.settings.decay)  # the first steps are averaged plainly, not begun from zero
        ours, theirs = self.network.state_dict(), network.state_dict()
        for name, value in ours.items():
            if value.is_floating_point():
                value.lerp_(theirs[name], weight)
            else:
                value.copy_(theirs[name])
        self.count += 1

    @torch.no_grad()
    def refresh(self, pixels: Iterable[Tensor]) -> None:
        """Estimate the batch norms anew from batches: the mean of statistics is not the statistics of the mean."""
        backbone = self.network.backbone
        update_bn(map(backbone.preprocess, pixels), backbone)
        backbone.eval()

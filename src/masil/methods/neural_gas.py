"""A neural gas: nodes that spread over features like a gas, with links between those that are nearest together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

RATE, REACH, LIFETIME = 0.02, 1.0, 200  # η, α, and the age at which a link is cut


@final
@dataclass
class NeuralGas:
    """Nodes [m d] and, for each pair, the age of their link, −1 where there is none (Martinetz and Schulten 1991)."""

    nodes: Tensor  # float [m d]
    ages: Tensor  # int64 [m m], symmetric

    @classmethod
    def start(cls, rows: Tensor, count: int, generator: torch.Generator) -> NeuralGas:
        """Begin at `count` of the rows, without links."""
        nodes = rows[torch.randperm(len(rows), generator=generator)[:count]].clone()
        return cls(nodes, torch.full((len(nodes), len(nodes)), -1))

    def step(self, row: Tensor) -> None:
        """Move the node of rank i by η e^{−i/α} towards the row, link the two nearest and age the winner's links."""
        order = (self.nodes - row).square().sum(1).argsort()
        shares = torch.empty(len(order)).scatter(0, order, RATE * torch.exp(-torch.arange(len(order)) / REACH))
        self.nodes += shares[:, None] * (row - self.nodes)
        if len(order) < 2:
            return
        winner, second = order[0], order[1]
        ages = self.ages[winner]
        ages = torch.where(ages >= 0, ages + 1, ages)
        ages[second] = 0
        ages[ages > LIFETIME] = -1
        self.ages[winner] = self.ages[:, winner] = ages

    def near(self, row: Tensor) -> Tensor:
        """Give the node nearest to a row, and those that are linked with it."""
        winner = int((self.nodes - row).square().sum(1).argmin())
        near = self.ages[winner] >= 0
        near[winner] = True
        return near.nonzero()[:, 0]

"""Episodes: some base classes play new ones, known by a few shots, and other images of them are asked about."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.collapse import class_means
from masil.protocol import by_class


@final
@dataclass(frozen=True)
class Episode:
    """Which images are shots and which are asked about, as positions; no image is both."""

    classes: Tensor  # [w], the classes that play
    shots: Tensor
    shot_places: Tensor  # of each shot, the place of its class in `classes`
    queries: Tensor
    query_places: Tensor

    def means(self, rows: Tensor) -> Tensor:
        """Give the mean row of each class's shots, [w d], in the order of `classes`."""
        return class_means(rows[self.shots], self.shot_places)


@final
class EpisodeSampler:
    """Draws episodes from labels 0 … k − 1."""

    def __init__(self, labels: Tensor, generator: torch.Generator) -> None:
        self.positions = by_class(labels, int(labels.max()) + 1)
        self.generator = generator

    def choose(self, count: int) -> Tensor:
        """Choose `count` different classes, or all there are."""
        return torch.randperm(len(self.positions), generator=self.generator)[:count]

    def draw(self, classes: Tensor, shots: int, queries: int = 0) -> Episode:
        """Draw `shots` and `queries` different images of each class.

        A class with fewer images than that is asked about less, and of its last image alone, if it has no other, not
        at all.
        """
        shown, asked = [], []
        for label in classes.tolist():
            positions = self.positions[label]
            order = torch.randperm(len(positions), generator=self.generator)[: shots + queries]
            few = min(shots, max(1, len(order) - min(queries, 1)))
            shown.append(positions[order[:few]])
            asked.append(positions[order[few:]])
        return Episode(classes, torch.cat(shown), _places(shown), torch.cat(asked), _places(asked))


def _places(parts: list[Tensor]) -> Tensor:
    return torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))

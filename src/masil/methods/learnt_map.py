"""The part of a network that a method may train when the backbone is shared and frozen: one linear map.

The methods of the field train their whole backbone. Here every method gets the same stored activations, and what it
would have taught the backbone it teaches a map M of them, which starts as the identity: untrained, it is the nearest
class mean by cosine of centred activations, and training can only be judged by what it adds to that. Where a backbone
was trained in the method's own way, there is nothing left to teach it in the base session: M and the centre stay out.
"""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.descent import descend, epochs
from masil.methods.method import NearestVector
from masil.methods.taught import check_features, class_means, new_classes, taught

# Chosen among rates of .03 to 10 and 5 to 20 epochs on base classes of CUB-200 that were given as few-shot ones.
BATCH, EPOCHS, RATE = 256, 10, 0.1


@final
class LearntMap:
    """g(a) = M (a/‖a‖ − m), m the mean of a/‖a‖ over the base session or 0, M learnt [d d]."""

    def __init__(self, activations: Tensor, *, centred: bool = True) -> None:
        """Centre on these activations; M is the identity."""
        mean = functional.normalize(activations.float()).mean(0)
        self.centre = mean if centred else torch.zeros_like(mean)  # m [d]
        self.matrix = torch.eye(activations.shape[1])  # Mᵀ [d d]

    def __call__(self, activations: Tensor) -> Tensor:
        """Map activations [n d]."""
        return self.centred(activations) @ self.matrix

    def centred(self, activations: Tensor) -> Tensor:
        """Give a/‖a‖ − m, what M is multiplied with."""
        return functional.normalize(activations.float()) - self.centre


def train_base(learnt: list[Tensor], loss: Callable[[Tensor], Tensor], rows: int, generator: torch.Generator) -> None:
    """Lower the loss of the base session."""
    descend(learnt, loss, rows, steps=epochs(EPOCHS, rows, BATCH), batch=BATCH, rate=RATE, generator=generator)


class MappedMeans(NearestVector):
    """A method whose base session trains the map, and whose classes are means after it."""

    def __init__(self, *, total: int | None = None, seed: int = 0) -> None:
        super().__init__(total=total, seed=seed)
        self.map_: LearntMap | None = None
        self.means_: Tensor | None = None  # [k d], after the map

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append the means of classes k, k + 1, …"""
        g, means = taught(self.map_), taught(self.means_)
        check_features(activations, len(g.centre))
        new_classes(activations, labels, len(means))
        self.means_ = torch.cat([means, class_means(g(activations), labels, len(means))])

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give mapped activations and class means."""
        g, means = taught(self.map_), taught(self.means_)
        check_features(activations, len(g.centre))
        return functional.normalize(g(activations)), functional.normalize(means)

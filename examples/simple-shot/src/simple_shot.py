"""SimpleShot (Wang et al., 2019): the nearest class mean after the base session's mean is taken off."""

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Method


class SimpleShot(Method):
    """Centre activations on the base session, scale them to unit length, and compare them with class means."""

    citation = "Wang et al., SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning, 2019"

    def __init__(self, *, total: int | None = None, seed: int = 0, centred: bool = True) -> None:
        super().__init__(total=total, seed=seed)
        self.centred = centred

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Take in the base session."""
        self.centre = activations.mean(0) if self.centred else torch.zeros(activations.shape[1])
        self.means = torch.empty(0, activations.shape[1])
        self.learn(activations, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append a mean for each new class; classes come in order."""
        unit = functional.normalize(activations - self.centre)
        new = [unit[labels == label].mean(0) for label in range(len(self.means), int(labels.max()) + 1)]
        self.means = torch.cat([self.means, torch.stack(new)])

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class whose mean is nearest."""
        return torch.cdist(functional.normalize(activations - self.centre), self.means).argmin(1)

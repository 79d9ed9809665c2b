"""SimpleShot (Wang et al., 2019): the nearest class mean after the base session's mean is taken off."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods import Method, Queries, Samples, Task, state


@dataclass(kw_only=True)
class SimpleShot(Method):
    """Centre activations on the base session, scale them to unit length, and compare them with class means."""

    name = "simple-shot"
    title = "SimpleShot"
    citation = "Wang et al., SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning, 2019"

    centred: bool = True  # a parameter: it is recorded, and `--set simple-shot.centred=false` changes it
    centre: Tensor = state()  # what was learnt
    means: Tensor = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Take in the base session."""
        features = base.activations.shape[1]
        self.centre = base.activations.mean(0) if self.centred else torch.zeros(features)
        self.means = torch.empty(0, features)
        self.learn(base)

    def learn(self, shots: Samples) -> None:
        """Append a mean for each new class; classes come in order."""
        unit, first = functional.normalize(shots.activations - self.centre), len(self.means)
        new = [unit[shots.labels == label].mean(0) for label in range(first, int(shots.labels.max()) + 1)]
        self.means = torch.cat([self.means, torch.stack(new)])

    def predict(self, queries: Queries) -> Tensor:
        """Give the class whose mean is nearest."""
        return torch.cdist(functional.normalize(queries.activations - self.centre), self.means).argmin(1)

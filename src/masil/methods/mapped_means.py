"""Methods whose base session trains the features, and whose classes are then means of them."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from masil.collapse import class_means
from masil.methods.method import NearestVector, Queries, Samples, Task, state
from masil.protocol import Protocol
from masil.training import BaseLoss, LinearFeatures, Recipe, train_map


@dataclass(kw_only=True)
class MappedMeans(NearestVector):
    """Train with a loss of its own: the backbone, where the run may, and otherwise a linear map of its activations."""

    g: LinearFeatures = state()

    @abstractmethod
    def loss(self, protocol: Protocol) -> BaseLoss:
        """Give the loss of the base session."""

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train the backbone with this method's loss."""
        return usual.trained_by(self.name, self.loss(protocol))

    def fit(self, base: Samples, task: Task) -> None:
        """Train the map, unless the backbone was trained with the loss; then average each class."""
        if task.own:
            self.g = LinearFeatures.identity(base.activations, centred=False)
        else:
            self.g = train_map(base.activations, base.labels, self.loss(task.protocol), seed=task.seed)
        self.vectors = self.base_vectors(self.g(base.activations), base.labels)

    def base_vectors(self, z: Tensor, labels: Tensor) -> Tensor:
        """Give the vectors [k d] of the base classes."""
        return class_means(z, labels)

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        means = class_means(self.g(shots.activations), shots.labels, len(self.vectors))
        self.vectors = torch.cat([self.vectors, means])

    def embed(self, queries: Queries) -> Tensor:
        """Give mapped activations."""
        return self.g(queries.activations)

"""Methods whose base session trains the features, and whose classes are then means of them."""

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from masil.methods.d_cosine import ClassMeans
from masil.methods.method import Queries, Samples, Task, state
from masil.protocol import Protocol
from masil.training import BaseLoss, LinearFeatures, Recipe, train_map


@dataclass(kw_only=True)
class MappedMeans(ClassMeans):
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
        self.g = LinearFeatures.identity(base.activations, centred=not task.adapted)
        if not task.own:
            loss = self.loss(task.protocol)
            train_map(base.activations, base.labels, loss, seed=task.seed, g=self.g)
            self.keep_of(loss)
        super().fit(base, task)

    def embed(self, queries: Queries) -> Tensor:
        """Give mapped activations."""
        return self.g(queries.activations)

    def keep_of(self, loss: BaseLoss) -> None:
        """Keep something of what a loss has learnt beside the map; by default nothing."""

"""The one interface of every method: a base session, then sessions, then predictions, all on activations."""

from abc import ABC, abstractmethod

from torch import Tensor


class Method(ABC):
    """A learner that is judged by a protocol. Activations are [n d] and >= 0; labels are protocol labels [n]."""

    @abstractmethod
    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Take in the base session."""

    @abstractmethod
    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Take in one further session: the shots of its new classes and nothing else."""

    @abstractmethod
    def predict(self, activations: Tensor) -> Tensor:
        """Give a label [n] among the classes taught so far."""

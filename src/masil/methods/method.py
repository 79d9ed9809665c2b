"""The one interface of every method: a base session, then sessions, then predictions, all on activations."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from masil.training import Recipe

Published = Mapping[str, Mapping[str, Any]]  # data set -> parameters


class Method(ABC):
    """A learner that is judged by a protocol. Activations are [n d] and >= 0; labels are protocol labels [n].

    A method says what it costs: whether images of the past are kept (`keeps_images`), whether its backbone is trained
    in a way of its own (`needs_base_training`, see `recipe`), and whether the number of classes that will ever come
    must be known in advance (`needs_total_classes`). `published` are parameters that its authors give for a data set.
    """

    citation: ClassVar[str]
    keeps_images: ClassVar[bool] = False
    needs_base_training: ClassVar[bool] = False
    needs_total_classes: ClassVar[bool] = False
    published: ClassVar[Published] = {}

    def __init__(self, *, total: int | None = None, seed: int = 0) -> None:
        """Prepare for `total` classes in the end, where a method needs to know; `seed` is of everything random."""
        self.total = total
        self.seed = seed
        # Whoever runs the method knows whether the backbone was trained on the base session's own images, and whether
        # that was done as this method's `recipe` says.
        self.backbone_trained = False
        self.own_base = False

    def recipe(self, usual: Recipe, base: int) -> Recipe:  # noqa: ARG002
        """Give the recipe of this method's base session of `base` classes, from the one that others use.

        Its `method` is this method's name, so that a checkpoint says whose it is.
        """
        return usual

    @classmethod
    def accepts(cls) -> frozenset[str]:
        """Give the names of the parameters that can be chosen."""
        return frozenset(inspect.signature(cls).parameters) - {"total", "seed"}

    def parameters(self) -> dict[str, Any]:
        """Give every parameter that is in force, defaults too; each is kept under its name."""
        return {name: getattr(self, name) for name in self.accepts() if hasattr(self, name)}

    @abstractmethod
    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Take in the base session."""

    @abstractmethod
    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Take in one further session: the shots of its new classes and nothing else."""

    @abstractmethod
    def predict(self, activations: Tensor) -> Tensor:
        """Give a label [n] among the classes taught so far."""

    def remarks(self) -> dict[str, Any]:
        """Give what else is worth keeping of what was learnt, as plain values that a record takes up."""
        return {}

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor] | None:  # noqa: ARG002
        """Give unit embeddings [n d'] and the unit class vectors [k d'] compared with them, where there are such."""
        return None


class NearestVector(Method):
    """A method that compares unit embeddings with unit class vectors; what differs is where the two come from."""

    @abstractmethod
    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give unit embeddings [n d'] and the unit vectors [k d'] of the classes taught so far."""

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class whose vector has the largest cosine."""
        z, vectors = self.geometry(activations)
        return (z @ vectors.T).argmax(1)

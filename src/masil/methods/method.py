"""The interface of a method: what it is told, what it is shown, and what it must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Flag, auto
from typing import Any, ClassVar, Literal, final

from torch import Tensor
from torch.nn import functional

from masil.backbones import Backbone
from masil.data import Images
from masil.protocol import Protocol
from masil.training import Recipe, Trained

Published = Mapping[str, Mapping[str, Any]]  # data set -> parameters
Geometry = tuple[Tensor, Tensor]  # unit embeddings [n d'] and the unit class vectors [k d'] compared with them


@dataclass(frozen=True)
class Queries:
    """Images to be named, as a method sees them. Row i of each field is image i."""

    activations: Tensor  # float [n d] >= 0, of the task's backbone
    images: Images | None = None  # not decoded yet; only for a method that `sees` images

    def __len__(self) -> int:
        return len(self.activations)


@final
@dataclass(frozen=True)
class Samples(Queries):
    """Images to be learnt, with their labels."""

    labels: Tensor = field(kw_only=True)  # int64 [n]: the classes of a session come next in order


@final
@dataclass(frozen=True)
class Task:
    """What a run tells a method before the base session. It is the same for every draw of the shots."""

    protocol: Protocol
    seed: int = 0
    device: str = "cpu"
    adapted: bool = False  # whether the backbone was trained on the images of this base session
    own: bool = False  # whether it was trained as this method's `base_session` asks
    trained: Trained | None = None  # that base session, for a method that asked for it or sees images
    backbone: Backbone | None = None  # frozen, for a method that sees images; copy it before you train it


class Keeps(Flag):
    """What of the past a method keeps between sessions."""

    MEANS = auto()
    COVARIANCE = auto()
    WEIGHTS = auto()
    EXEMPLARS = auto()  # images, or their activations
    GENERATOR = auto()


def state() -> Any:
    """Declare a field that `fit` fills: it is no parameter."""
    return field(init=False, default=None, repr=False)


@dataclass(kw_only=True)
class Method(ABC):
    """A few-shot class-incremental learner, as the benchmark plays it.

    `fit` is called once with all images of the base classes 0 … k − 1, then `learn` once a session with the shots of
    its new classes and nothing else. After each, `predict` is asked about test images of all classes so far. Methods
    need no checks of their own for this order, for shapes or for labels: the benchmark plays them through `Checked`.

    Subclasses are dataclasses. Fields of the constructor are parameters: all of them are recorded, and the command
    line sets them by `--set NAME.FIELD=VALUE`. Other fields (`state()`) are what was learnt.
    """

    name: ClassVar[str]  # on the command line and in files
    title: ClassVar[str]  # in tables
    citation: ClassVar[str]
    differs: ClassVar[str] = ""  # in two lines, how this is not what its authors do
    sees: ClassVar[Literal["activations", "images"]] = "activations"
    trains: ClassVar[Literal["nothing", "head", "network"]] = "nothing"  # in a session
    keeps: ClassVar[Keeps] = Keeps.MEANS
    needs_total: ClassVar[bool] = False  # must know in advance how many classes will ever come
    needs_own_base: ClassVar[bool] = False  # it is its base session: of a shared backbone it would make nothing new
    published: ClassVar[Published] = {}  # parameters that its authors give for a data set

    @classmethod
    def accepts(cls) -> frozenset[str]:
        """Name the parameters that can be chosen."""
        return frozenset(parameter.name for parameter in fields(cls) if parameter.init)

    def parameters(self, task: Task) -> dict[str, Any]:
        """Give every parameter that is in force for a task, defaults too."""
        return {name: getattr(self, name) for name in self.accepts()}

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe | None:
        """Give the recipe by which this method trains a backbone of its own; None if it takes the shared one.

        Only the loss should differ from the `usual` recipe, so that all methods have the same means; see
        `Recipe.trained_by`. The run trains it, once for all draws.
        """
        return None

    @abstractmethod
    def fit(self, base: Samples, task: Task) -> None:
        """Take in the base session, forgetting everything before it."""

    @abstractmethod
    def learn(self, shots: Samples) -> None:
        """Take in one session."""

    @abstractmethod
    def predict(self, queries: Queries) -> Tensor:
        """Give a class among those taught so far for each query, int64 [n]."""

    def scores(self, queries: Queries) -> Tensor | None:
        """Give a number for each class taught so far, [n k], the largest of which wins, where the method has such."""
        return None

    def geometry(self, queries: Queries) -> Geometry | None:
        """Give unit embeddings and unit class vectors, where the method compares such."""
        return None

    def remarks(self) -> dict[str, Any]:
        """Give plain values that are worth a place in the record."""
        return {}


@dataclass(kw_only=True)
class LargestScore(Method):
    """A method that gives every class a score; the largest wins."""

    @abstractmethod
    def scores(self, queries: Queries) -> Tensor:
        """Give a score for each class taught so far, [n k]."""

    def predict(self, queries: Queries) -> Tensor:
        """Give the class with the largest score."""
        return self.scores(queries).argmax(1)


@dataclass(kw_only=True)
class NearestVector(LargestScore):
    """A method that compares embeddings with class vectors by cosine; what differs is where the two come from."""

    vectors: Tensor = state()  # [k d'], of the classes taught so far

    @abstractmethod
    def embed(self, queries: Queries) -> Tensor:
        """Give what is compared with the class vectors, [n d']."""

    def geometry(self, queries: Queries) -> Geometry:
        """Give embeddings and class vectors at unit length."""
        return functional.normalize(self.embed(queries)), functional.normalize(self.vectors)

    def scores(self, queries: Queries) -> Tensor:
        """Give the cosine to each class's vector."""
        z, vectors = self.geometry(queries)
        return z @ vectors.T


def centred_units(activations: Tensor, centre: Tensor) -> Tensor:
    """Give activations [n d] at unit length once `centre` [d], what all unit activations share, is taken off them."""
    return functional.normalize(functional.normalize(activations.float()) - centre)

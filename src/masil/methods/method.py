"""The interface of a method: what it is told, what it is shown, and what it must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Flag, auto
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import class_means
from masil.data import Images
from masil.errors import InputError, check_seed
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

    @property
    def shown(self) -> Images:
        """The images, which a method that `sees` them is always given."""
        assert self.images is not None
        return self.images


@final
@dataclass(frozen=True)
class Samples(Queries):
    """Images to be learnt, with their labels."""

    labels: Tensor = field(kw_only=True)  # int64 [n]: the classes of a session come next in order

    @property
    def classes(self) -> int:
        """The number of classes once these are learnt."""
        return int(self.labels.max()) + 1

    def some(self, rows: Tensor) -> Samples:
        """Give the samples at these positions, or where a mask is true."""
        rows = rows.nonzero()[:, 0] if rows.dtype == torch.bool else rows
        images = None if self.images is None else self.images.subset(rows)
        return Samples(self.activations[rows], images, labels=self.labels[rows])

    def joined(self, others: Samples) -> Samples:
        """Give activations and labels of these and then of others."""
        return Samples(
            torch.cat([self.activations, others.activations]), labels=torch.cat([self.labels, others.labels])
        )


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
    rehearsals: tuple[Rehearsal, ...] = ()  # of a method that `chooses`; else it makes its own

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def network(self) -> Backbone:
        """The backbone, which a method that sees images is always told."""
        assert self.backbone is not None
        return self.backbone

    @property
    def own_vectors(self) -> Tensor | None:
        """The class vectors that this method's own base session learnt, where it had one."""
        return self.trained.class_vectors if self.own and self.trained is not None else None

    def generator(self) -> torch.Generator:
        """Give a new generator of random numbers at the task's seed."""
        return torch.Generator().manual_seed(self.seed)


@final
@dataclass(frozen=True)
class Rehearsal:
    """A smaller protocol of base classes alone, some of which play novel ones; choices are made by how it goes."""

    base: Samples
    draws: tuple[tuple[Samples, ...], ...]  # of the shots; each has all sessions
    tests: Samples
    task: Task


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
    counts: ClassVar[tuple[str, ...]] = ()  # parameters that must be at least 1
    on_shared: ClassVar[str] = ""  # what of it is left on a shared backbone, where 'all' leaves it out
    chooses: ClassVar[bool] = False  # whether it chooses parameters on base classes that play novel
    head_only: ClassVar[bool] = False  # whether on a shared backbone it trains what stands on that alone
    published: ClassVar[Published] = {}  # parameters that its authors give for a data set

    def __post_init__(self) -> None:
        for name in self.counts:
            if getattr(self, name) < 1:
                raise InputError(f"'{name}' of '{self.name}' is {getattr(self, name):g}, but must be at least 1.")

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

    def check_task(self, task: Task) -> None:
        """Refuse a task that cannot be played, in a sentence; a run asks before anything is made for it."""
        if self.needs_own_base and not task.own:
            raise InputError(
                f"'{self.name}' is a way to train the base session; on a shared backbone nothing of it is left but the "
                "nearest class mean, 'd-cosine'. Let it train its own: --recipe RECIPE."
            )

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


@dataclass(kw_only=True)
class Centred(Method):
    """A method that sees unit activations less what all of them share, which would make every cosine high."""

    centre: Tensor = state()  # [d], their mean over the base session, or 0

    def find_centre(self, base: Samples, *, centred: bool = True) -> None:
        """Take the mean over the base session, or 0: most methods do not centre what the backbone was trained on."""
        self.centre = functional.normalize(base.activations.float()).mean(0) * centred

    def prepared(self, activations: Tensor) -> Tensor:
        """Give activations [n d] at unit length, centred, and at unit length again."""
        return functional.normalize(functional.normalize(activations.float()) - self.centre)

    def unit_means(self, samples: Samples, known: int = 0) -> Tensor:
        """Give the means of the classes `known`, `known` + 1, … at unit length, [k d]."""
        return functional.normalize(class_means(self.prepared(samples.activations), samples.labels, known))

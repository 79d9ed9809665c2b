"""The nearest class mean by cosine: the field's plainest methods, and the ones every other has to beat.

The FSCIL literature calls them "decoupled": a class is the mean of its activations, and nothing is trained in a
session. "decoupled-cosine" goes back to the matching networks of Vinyals et al. (2016). "decoupled-NegCosine" trains
the base session with a negative margin (Liu et al. 2020): classes held apart less leave more room for new ones.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import NearestVector, Published, Queries, Samples, Task, state
from masil.protocol import Protocol
from masil.training import BaseLoss, CosineLoss, LinearFeatures, Recipe, train_map


@dataclass(kw_only=True)
class ClassMeans(NearestVector):
    """A class is the mean of its embeddings, by default activations, and nothing is trained in a session."""

    def fit(self, base: Samples, task: Task) -> None:
        """Start afresh from the base classes' means."""
        self.vectors = class_means(self.embed(base), base.labels)

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes."""
        self.vectors = torch.cat([self.vectors, class_means(self.embed(shots), shots.labels, len(self.vectors))])

    def embed(self, queries: Queries) -> Tensor:
        """Give activations."""
        return queries.activations


@final
@dataclass(kw_only=True)
class DCosine(ClassMeans):
    """A class is the mean of its activations; the largest cosine wins."""

    name = "d-cosine"
    title = "D-Cosine"
    citation = "Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016"
    differs = (
        "The original compares an image with every shot, by attention learnt in episodes; as in the decoupled rows of "
        "the FSCIL tables, a class here is the mean of its activations and nothing is trained in a session."
    )


@final
@dataclass(kw_only=True)
class DCosineCentred(ClassMeans):
    """The same once the mean of the base session is taken off: the control for methods that centre activations."""

    name = "d-cosine-centred"
    title = "D-Cosine, centred"
    citation = DCosine.citation
    differs = "A control of ours: unit activations are centred on their mean over the base session."
    centre: Tensor = state()  # [d]

    def fit(self, base: Samples, task: Task) -> None:
        """Find the centre, then the base classes' means."""
        self.centre = functional.normalize(base.activations).mean(0)
        super().fit(base, task)

    def embed(self, queries: Queries) -> Tensor:
        """Give centred activations."""
        return functional.normalize(queries.activations) - self.centre


@dataclass(kw_only=True)
class MappedMeans(ClassMeans):
    """Train with a loss of its own: the backbone, where the run may, and otherwise a linear map of its activations."""

    head_only = True

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


@final
@dataclass(kw_only=True)
class DNegCosine(MappedMeans):
    """Train −log softmax_y(s (cos θ_j − m [j = y])) with m < 0 on the base session; then compare with class means.

    The margin is that of the original's cosine softmax with five shots on miniImageNet.
    """

    name = "d-negcosine"
    title = "D-NegCosine"
    citation = "Liu et al., Negative Margin Matters: Understanding Margin in Few-Shot Classification, ECCV 2020"
    differs = (
        "The original fits a cosine classifier to the shots; as in the decoupled rows of the FSCIL tables, a novel "
        "class is their mean. On a shared backbone a linear map of activations is trained instead of the backbone."
    )
    published: ClassVar[Published] = {"cub200": {"margin": -0.01}}

    margin: float = -0.02
    scale: float = 30.0

    def loss(self, protocol: Protocol) -> CosineLoss:
        """Give the cosine loss with the margin."""
        return CosineLoss(scale=self.scale, margin=self.margin)

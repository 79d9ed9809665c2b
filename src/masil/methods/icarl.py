"""iCaRL: exemplars are replayed, old outputs distilled, the nearest mean of exemplars decides (Rebuffi et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import NearestVector, Samples, Task
from masil.methods.replay import SCALE, Replay
from masil.protocol import Protocol
from masil.training import BaseLoss, Recipe, soft_labels


@final
@dataclass(eq=False, kw_only=True)
class ICaRLLoss(BaseLoss):
    """One sigmoid a class: the binary cross-entropy of σ(s (cos − ½)), summed over classes."""

    name: ClassVar[str] = "icarl"
    scale: float = SCALE

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the class vectors."""
        return self.place(torch.randn(classes, features, generator=generator, device=generator.device))

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Judge every class alone; the label of a mixed image is its share."""
        assert self.vectors is not None
        logits = self.scale * (functional.normalize(activations) @ functional.normalize(self.vectors).T - 0.5)
        return sigmoid_loss(logits, soft_labels(labels, partners, lam, len(self.vectors)))


@final
@dataclass(kw_only=True)
class ICaRL(Replay, NearestVector):
    """Train one sigmoid per class, new ones towards labels and old ones towards what they said before the session.

    A class is the mean of its exemplars' unit embeddings, worked out anew after every session.
    """

    name = "icarl"
    title = "iCaRL"
    citation = "Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017"
    differs = (
        "The original trains its whole network in every session; here a linear map of frozen activations is trained, "
        "on batches with as many rows of every class, so it forgets far less than published."
    )
    start_bias = -SCALE / 2

    def base_loss(self) -> ICaRLLoss:
        """Give one sigmoid a class."""
        return ICaRLLoss()

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train one sigmoid a class."""
        return usual.trained_by(self.name, ICaRLLoss())

    def fit(self, base: Samples, task: Task) -> None:
        """Train on the labels alone, then choose exemplars. A backbone of its own brings the sigmoids along."""
        super().fit(base, task)
        self._name_classes()

    def learn(self, shots: Samples) -> None:
        """Train on exemplars and shots, then choose exemplars among the shots."""
        rehearsed = self.memory.joined(shots)
        activations, labels = rehearsed.activations, rehearsed.labels
        before = torch.sigmoid(self.logits(activations))
        self.grow(self.new_means(shots))
        targets = functional.one_hot(labels, len(self.rows)).float()
        targets[:, : before.shape[1]] = before

        def loss(rows: Tensor) -> Tensor:
            return sigmoid_loss(self.logits(activations[rows]), targets[rows])

        self.train_session([self.g.matrix, self.rows, self.bias], loss, labels)
        self.choose_exemplars(shots)
        self._name_classes()

    def _name_classes(self) -> None:
        self.vectors = class_means(self.unit(self.memory.activations), self.memory.labels)


def sigmoid_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Give Σ_j BCE(σ(logit_j), target_j), the mean over rows; targets [n k] lie in [0, 1]."""
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()

"""What the replay methods share: exemplars chosen by herding, and a classifier that gets a row for every class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.descent import Descends
from masil.methods.method import Keeps, Samples, Task, state
from masil.training import BaseLoss, CosineLoss, LinearFeatures, train_map

# Of a class, as in the class-incremental literature. The rows of the FSCIL tables had less: 400 of all base classes and
# one of each novel class.
EACH = 20
SCALE = 16.0  # of the products with unit embeddings
STEPS, BATCH = 100, 128  # of a session


@final
@dataclass
class Exemplars:
    """At most `each` images a class. The backbone is frozen, so activations stand for the images."""

    each: int
    activations: Tensor  # [n d]
    labels: Tensor  # [n]

    @classmethod
    def empty(cls, features: int, each: int) -> Exemplars:
        """Start without any."""
        return cls(each, torch.empty(0, features), torch.empty(0, dtype=torch.int64))

    def add(self, samples: Samples, embed: Callable[[Tensor], Tensor]) -> None:
        """Choose among the images of each class by herding on their unit embeddings."""
        for label in range(int(samples.labels.min()), int(samples.labels.max()) + 1):
            rows = samples.activations[samples.labels == label]
            chosen = rows[herd(functional.normalize(embed(rows)), self.each)]
            self.activations = torch.cat([self.activations, chosen.float()])
            self.labels = torch.cat([self.labels, torch.full((len(chosen),), label)])

    def with_shots(self, shots: Samples) -> tuple[Tensor, Tensor]:
        """Give the activations and labels of all exemplars, then of a session's shots."""
        return torch.cat([self.activations, shots.activations.float()]), torch.cat([self.labels, shots.labels])


@final
class ExpandingClassifier:
    """Logits s w_j · z + b_j with z = unit(g(a)): a whole network where the backbone is frozen and shared."""

    def __init__(self, g: LinearFeatures, rows: Tensor, bias: float, common: Tensor | None = None) -> None:
        """Start with the base classes' rows; `common` [d] is taken off the means that new rows start at.

        Activations are non-negative, so without centring all of them share a large common component. A new row that
        held it would answer yes to every image.
        """
        self.g = g
        self.start_bias = bias
        self.common = torch.zeros(rows.shape[1]) if common is None else common
        self.rows = functional.normalize(rows)  # w [k d]
        self.bias = torch.full((len(rows),), bias)  # b [k]

    def grow(self, rows: Tensor) -> None:
        """Append classes that start with these rows, at unit length: class means, where originals draw at random."""
        self.rows = torch.cat([self.rows, functional.normalize(rows - self.common)])
        self.bias = torch.cat([self.bias, torch.full((len(rows),), self.start_bias)])

    def new_means(self, shots: Samples) -> Tensor:
        """Give the mean embeddings of a session's classes."""
        return class_means(self.embed(shots.activations), shots.labels, len(self.rows))

    def embed(self, activations: Tensor) -> Tensor:
        """Give unit embeddings z [n d]."""
        return functional.normalize(self.g(activations))

    def logits(self, activations: Tensor) -> Tensor:
        """Give one number per class, [n k]."""
        return SCALE * self.embed(activations) @ self.rows.T + self.bias


@dataclass(kw_only=True)
class Replay(Descends):
    """Train a classifier on the base session and keep exemplars; sessions are the subclasses'."""

    trains = "head"
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS
    tried = {"lr": (0.1, 0.3, 0.03, 0.01)}  # noqa: RUF012
    start_bias: ClassVar[float] = 0.0

    exemplars: int = EACH
    lr: float | None = None  # of a session
    net: ExpandingClassifier = state()
    memory: Exemplars = state()

    def base_loss(self) -> BaseLoss:
        """Give the loss of the base session."""
        return CosineLoss(scale=SCALE)

    def fit(self, base: Samples, task: Task) -> None:
        """Train on the labels alone, then choose exemplars."""
        self.choose(base, task)
        self.net = self._base_classifier(base, task)
        self.memory = Exemplars.empty(base.activations.shape[1], self.exemplars)
        self.memory.add(base, self.net.embed)

    def train_session(
        self, learnt: list[Tensor], loss: Callable[[Tensor], Tensor], labels: Tensor, share: float = 1.0
    ) -> None:
        """Lower the loss of a session; `share` makes the steps smaller, for a last touch."""
        self.descend(learnt, loss, labels, steps=STEPS, batch=BATCH, rate=share * self.value("lr"))

    def _base_classifier(self, base: Samples, task: Task) -> ExpandingClassifier:
        """Give the classifier after the base session.

        Where the backbone was trained on these classes, there is nothing left for a map to learn, and activations are
        not centred: the rows are those that came with the backbone, if it was trained with this loss, or the class
        means. Otherwise a map of centred activations is trained with the loss.
        """
        if not task.adapted:
            loss = self.base_loss()
            g = train_map(base.activations, base.labels, loss, seed=task.seed)
            return ExpandingClassifier(g, loss.class_vectors(int(base.labels.max()) + 1), self.start_bias)
        g = LinearFeatures.identity(base.activations, centred=False)
        unit = functional.normalize(g(base.activations))
        common = unit.mean(0)
        own = task.own and task.trained is not None
        rows = task.trained.class_vectors if own and task.trained else class_means(unit, base.labels) - common
        return ExpandingClassifier(g, rows, self.start_bias, common)


def herd(z: Tensor, most: int) -> Tensor:
    """Order rows so that every first few have a mean near that of all (Rebuffi et al. 2017, Algorithm 4).

    Row p_k is argmin ‖μ − (x + Σ_{j<k} p_j)/k‖ over the rows x that are left.
    """
    mean, total = z.mean(0), torch.zeros_like(z[0])
    free = torch.ones(len(z), dtype=torch.bool)
    chosen = []
    for k in range(1, min(most, len(z)) + 1):
        distances = (mean - (z + total) / k).norm(dim=1).masked_fill(~free, torch.inf)
        best = int(distances.argmin())
        chosen.append(best)
        free[best] = False
        total = total + z[best]
    return torch.tensor(chosen)

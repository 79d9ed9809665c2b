"""What the replay methods share: exemplars chosen by herding, and a classifier that gets a row for every class."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.descent import Descends
from masil.methods.method import Keeps, Queries, Samples, Task, state
from masil.protocol import by_class
from masil.training import BaseLoss, CosineLoss, LinearFeatures, train_map

# Of a class, as in the class-incremental literature. The rows of the FSCIL tables had less: 400 of all base classes and
# one of each novel class.
EACH = 20
SCALE = 16.0  # of the products with unit embeddings
STEPS, BATCH = 100, 128  # of a session


@dataclass(kw_only=True)
class Replay(Descends):
    """Train a classifier on the base session and keep exemplars; sessions are the subclasses'.

    The classifier gives logits s w_j · z + b_j with z = unit(g(a)): it stands for a whole network where the backbone is
    frozen and shared. Activations of exemplars stand for the images.
    """

    trains = "head"
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS
    tried = {"lr": (0.1, 0.3, 0.03, 0.01)}  # noqa: RUF012
    start_bias: ClassVar[float] = 0.0

    exemplars: int = EACH  # of a class, at most
    lr: float | None = None  # of a session
    g: LinearFeatures = state()
    rows: Tensor = state()  # w [k d], unit length at the start
    bias: Tensor = state()  # b [k]
    common: Tensor = state()  # [d], what is taken off the means that new rows start at
    memory: Samples = state()

    def base_loss(self) -> BaseLoss:
        """Give the loss of the base session."""
        return CosineLoss(scale=SCALE)

    def fit(self, base: Samples, task: Task) -> None:
        """Train on the labels alone, then choose exemplars.

        Where the backbone was trained on these classes, there is nothing left for a map to learn, and activations are
        not centred: the rows are those that came with the backbone, if it was trained with this loss, or the class
        means. All such activations share a large common component, since they are non-negative; a new row that held it
        would answer yes to every image. Otherwise a map of centred activations is trained with the loss.
        """
        self.choose(base, task)
        if task.adapted:
            self.g = LinearFeatures.identity(base.activations, centred=False)
            unit = self.unit(base.activations)
            self.common = unit.mean(0)
            rows = class_means(unit, base.labels) - self.common if task.own_vectors is None else task.own_vectors
        else:
            loss = self.base_loss()
            self.g = train_map(base.activations, base.labels, loss, seed=task.seed)
            rows = loss.class_vectors(base.classes)
            self.common = torch.zeros(rows.shape[1])
        self.rows = functional.normalize(rows)
        self.bias = torch.full((len(rows),), self.start_bias)
        self.memory = Samples(torch.empty(0, base.activations.shape[1]), labels=torch.empty(0, dtype=torch.int64))
        self.choose_exemplars(base)

    def choose_exemplars(self, samples: Samples) -> None:
        """Add exemplars of the classes of a session, chosen by herding on their unit embeddings."""
        parts = [rows for rows in by_class(samples.labels, samples.classes) if len(rows)]
        embedded = [functional.normalize(self.unit(samples.activations[rows])) for rows in parts]
        chosen = [rows[herd(z, self.exemplars)] for rows, z in zip(parts, embedded, strict=True)]
        self.memory = self.memory.joined(samples.some(torch.cat(chosen)))

    def new_means(self, shots: Samples) -> Tensor:
        """Give the mean embeddings of a session's classes."""
        return class_means(self.unit(shots.activations), shots.labels, len(self.rows))

    def grow(self, rows: Tensor) -> None:
        """Append classes that start with these rows, at unit length: class means, where originals draw at random."""
        self.rows = torch.cat([self.rows, functional.normalize(rows - self.common)])
        self.bias = torch.cat([self.bias, torch.full((len(rows),), self.start_bias)])

    def unit(self, activations: Tensor) -> Tensor:
        """Give unit embeddings z [n d]."""
        return functional.normalize(self.g(activations))

    def logits(self, activations: Tensor) -> Tensor:
        """Give one number per class, [n k]."""
        return SCALE * self.unit(activations) @ self.rows.T + self.bias

    def embed(self, queries: Queries) -> Tensor:
        """Give unit embeddings."""
        return self.unit(queries.activations)

    def train_session(
        self, learnt: list[Tensor], loss: Callable[[Tensor], Tensor], labels: Tensor, share: float = 1.0
    ) -> None:
        """Lower the loss of a session; `share` makes the steps smaller, for a last touch."""
        self.descend(learnt, loss, labels, steps=STEPS, batch=BATCH, rate=share * self.value("lr"))


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

"""Fixed classifier: the class vectors of all classes that will ever come are a regular simplex and never learnt.

Future classes are among the wrong answers from the start (Pernici et al. 2021).
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means, simplex_etf
from masil.methods.descent import Descends
from masil.methods.method import Centred, Geometry, Keeps, NearestVector, Queries, Samples, Task, state
from masil.training import minimise_convex

SCALE = 16.0  # length of what is mapped, so that M need not be long
DECAY = 5e-4
STEPS, BATCH = 100, 64  # of a session


@final
@dataclass(kw_only=True)
class FixedClassifier(Descends, Centred, NearestVector):
    """Minimise cross-entropy of W M x over M, W a simplex [K K−1] of all K classes, x activations of one length.

    They are centred where the backbone was not trained on the base classes. In the base session the loss is convex, so
    its minimum is found; in a session M is fine-tuned on shots and means.
    """

    name = "fixed-classifier"
    title = "Fixed classifier"
    citation = "Pernici et al., Class-incremental Learning with Pre-allocated Fixed Classifiers, ICPR 2020"

    differs = (
        "The original trains the features and replays stored images; here a linear map of activations is trained, and "
        "one mean of activations per earlier class is replayed."
    )
    trains = "head"
    keeps = Keeps.MEANS | Keeps.WEIGHTS
    needs_total = True
    tried = {"lr": (0.01, 0.1, 0.03, 0.003)}  # noqa: RUF012

    lr: float | None = None
    matrix: Tensor = state()  # Mᵀ [d K−1]
    memory: Tensor = state()  # [k d], one mean of x per class

    def fit(self, base: Samples, task: Task) -> None:
        """Find the best M for the base session."""
        self.choose(base, task)
        total, labels = task.protocol.classes, base.labels
        self.vectors = vectors = simplex_etf(total, total - 1, self.generator)
        self.find_centre(base, centred=not task.adapted)
        x = self.prepared(base.activations)
        M = torch.zeros(x.shape[1], total - 1)
        minimise_convex(M, lambda: functional.cross_entropy(x @ M @ vectors.T, labels) + DECAY / 2 * M.square().sum())
        self.matrix, self.memory = M, class_means(x, labels)

    def learn(self, shots: Samples) -> None:
        """Fine-tune on the shots and the mean of every earlier class."""
        M, known = self.matrix, len(self.memory)
        x = self.prepared(shots.activations)
        rows, labels = torch.cat([self.memory, x]), torch.cat([torch.arange(known), shots.labels])

        def loss(batch: Tensor) -> Tensor:
            return functional.cross_entropy(rows[batch] @ M @ self.vectors.T, labels[batch])

        self.descend([M], loss, labels, steps=STEPS, batch=BATCH, rate=self.value("lr"))
        self.memory = torch.cat([self.memory, class_means(x, shots.labels, known)])

    def embed(self, queries: Queries) -> Tensor:
        """Give mapped activations."""
        return self.prepared(queries.activations) @ self.matrix

    def geometry(self, queries: Queries) -> Geometry:
        """Compare with the vectors of the classes taught so far."""
        return functional.normalize(self.embed(queries)), self.vectors[: len(self.memory)]

    def prepared(self, activations: Tensor) -> Tensor:
        """Give activations of one length, centred where they are."""
        return SCALE * super().prepared(activations)

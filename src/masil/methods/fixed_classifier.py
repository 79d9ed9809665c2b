"""Fixed classifier: the class vectors of all classes that will ever come are a regular simplex and never learnt.

Pernici et al. (2021) train the features under it, future classes being among the wrong answers from the start, and
replay stored images. Here a linear map of the shared backbone's activations is trained instead of the features, and one
mean of activations per earlier class is replayed instead of images.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import simplex_etf
from masil.methods.descent import descend, settle
from masil.methods.method import NearestVector
from masil.methods.taught import check_features, check_total, class_means, new_classes, taught

SCALE = 16.0  # length of what is mapped, so that M need not be long
DECAY = 5e-4
STEPS, RATE, BATCH = 100, 0.01, 64  # of a session


@final
class FixedClassifier(NearestVector):
    """Minimise cross-entropy of W M x over M, W a simplex [K K−1] of all K classes, x centred activations.

    In the base session the loss is convex, so its minimum is found; in a session M is fine-tuned on shots and means.
    """

    citation = "Pernici et al., Class-incremental Learning with Pre-allocated Fixed Classifiers, ICPR 2020"
    needs_total_classes = True

    def __init__(self, *, total: int | None = None, seed: int = 0) -> None:
        super().__init__(total=total, seed=seed)
        self.centre_: Tensor | None = None  # [d]
        self.matrix_: Tensor | None = None  # Mᵀ [d K−1]
        self.memory_: Tensor | None = None  # [k d], one mean of x per class

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Find the best M for the base session."""
        k = new_classes(activations, labels)
        total = check_total(self.total, k)
        self.generator_ = torch.Generator().manual_seed(self.seed)
        self.vectors_ = simplex_etf(total, total - 1, self.generator_)
        self.centre_ = functional.normalize(activations.float()).mean(0)
        x = self._prepared(activations)
        M = torch.zeros(x.shape[1], total - 1)
        settle(M, lambda: functional.cross_entropy(x @ M @ self.vectors_.T, labels) + DECAY / 2 * M.square().sum())
        self.matrix_, self.memory_ = M, class_means(x, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Fine-tune on the shots and the mean of every earlier class."""
        M, memory = taught(self.matrix_), taught(self.memory_)
        check_features(activations, len(M))
        k = len(memory) + new_classes(activations, labels, len(memory))
        check_total(self.total, k)
        shots = self._prepared(activations)
        x, y = torch.cat([memory, shots]), torch.cat([torch.arange(len(memory)), labels])

        def loss(rows: Tensor) -> Tensor:
            return functional.cross_entropy(x[rows] @ M @ self.vectors_.T, y[rows])

        descend([M], loss, len(y), steps=STEPS, batch=BATCH, rate=RATE, generator=self.generator_)
        self.memory_ = torch.cat([memory, class_means(shots, labels, len(memory))])

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give mapped activations and the simplex vectors of the classes taught so far."""
        M = taught(self.matrix_)
        check_features(activations, len(M))
        return functional.normalize(self._prepared(activations) @ M), self.vectors_[: len(taught(self.memory_))]

    def _prepared(self, activations: Tensor) -> Tensor:
        return SCALE * functional.normalize(functional.normalize(activations.float()) - taught(self.centre_))

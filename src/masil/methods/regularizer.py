"""Subspace regularisation: a novel class's weights are drawn into the span of the base classes' (Akyürek et al. 2022).

All that is trained is a linear classifier, on centred activations of fixed length. Its loss is convex, so its minimum
is found instead of approached.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import Keeps, Method, Queries, Samples, Task, state
from masil.training import minimise_convex

SCALE = 16.0  # length of the activations, that of a ResNet's; the weights below are relative to it


@final
@dataclass(kw_only=True)
class Regularizer(Method):
    """Minimise ℓ(W) + Σ_old λ ‖w − w₀‖² + `novel` Σ_new ‖w − proj w‖² + ½ `decay` ‖W‖², proj onto base weights.

    ℓ is the cross-entropy of the session's shots and of one mean per earlier class. w₀ are a class's weights at the end
    of the session that taught it; λ is `old` for base classes and `earlier` for novel ones of earlier sessions.
    """

    name = "regularizer"
    title = "Regularizer"
    citation = "Akyürek et al., Subspace Regularizers for Few-Shot Class Incremental Learning, ICLR 2022"

    differs = (
        "The original approaches the minimum by gradient descent and replays a stored image per class; here it is "
        "found by L-BFGS, and the mean of a class's activations is replayed."
    )
    trains = "head"
    keeps = Keeps.MEANS | Keeps.WEIGHTS

    old: float = 0.2
    earlier: float = 0.1
    novel: float = 1.0
    decay: float = 5e-4
    centre: Tensor = state()  # [d]
    weights: Tensor = state()  # W [k d]
    anchors: Tensor = state()  # w₀ [k d]
    base: int = state()  # classes
    span: Tensor = state()  # [d r], an orthonormal basis of the base weights
    memory: Tensor = state()  # [k d], one mean per class

    def fit(self, base: Samples, task: Task) -> None:
        """Find the base classes' weights."""
        labels, self.base = base.labels, int(base.labels.max()) + 1
        self.centre = functional.normalize(base.activations.float()).mean(0)
        x, W = self._prepared(base.activations), torch.zeros(self.base, base.activations.shape[1])
        minimise_convex(W, lambda: functional.cross_entropy(x @ W.T, labels) + self.decay / 2 * W.square().sum())
        # Scores ignore what all rows of W share, so decay leaves none of it: k classes span k − 1 directions, and the
        # mean of their weights, which is rounding, is not one more.
        self.weights, self.span, self.memory = W, basis(W - W.mean(0)), class_means(x, labels)
        self.anchors = W.clone()

    def learn(self, shots: Samples) -> None:
        """Find the weights of the new classes and let the others move a little."""
        known = len(self.weights)
        x = self._prepared(shots.activations)
        means = class_means(x, shots.labels, known)
        rows, labels = torch.cat([self.memory, x]), torch.cat([torch.arange(known), shots.labels])
        tie = torch.where(torch.arange(known) < self.base, self.old, self.earlier)[:, None]
        W = torch.cat([self.weights, torch.zeros_like(means)])

        def loss() -> Tensor:
            moved, outside = W[:known] - self.anchors, W[known:] - projected(W[known:], self.span)
            pull = (tie * moved.square()).sum() + self.novel * outside.square().sum()
            return functional.cross_entropy(rows @ W.T, labels) + pull + self.decay / 2 * W.square().sum()

        minimise_convex(W, loss)
        self.anchors = torch.cat([self.anchors, W[known:].clone()])
        self.weights, self.memory = W, torch.cat([self.memory, means])

    def predict(self, queries: Queries) -> Tensor:
        """Give the class with the largest product."""
        return (self._prepared(queries.activations) @ self.weights.T).argmax(1)

    def _prepared(self, activations: Tensor) -> Tensor:
        return SCALE * functional.normalize(functional.normalize(activations.float()) - self.centre)


def basis(W: Tensor) -> Tensor:
    """Give an orthonormal basis of the rows of W as columns [d r]; singular values of mere rounding do not count."""
    _, values, rows = torch.linalg.svd(W, full_matrices=False)
    independent: Tensor = rows[values > values[0] * max(W.shape) * torch.finfo(W.dtype).eps]
    return independent.T


def projected(w: Tensor, span: Tensor) -> Tensor:
    """Give the rows of w projected onto the span of orthonormal columns."""
    return w @ span @ span.T

"""Subspace regularisation: a novel class's weights are drawn into the span of the base classes' (Akyürek et al. 2022).

All that is trained is a linear classifier, on activations of fixed length. In the base session its loss is convex, so
its minimum is found; a session descends as the authors do, and stops early as they do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.descent import Descends, take_step
from masil.methods.method import Centred, Keeps, LargestScore, Queries, Samples, Task, state
from masil.protocol import by_class
from masil.training import minimise_convex

SCALE = 16.0  # length of the activations, that of a ResNet's; the weights below are relative to it
MOMENTUM = 0.9
SMALL, PATIENCE, MOST = 1e-4, 10, 1000  # a session ends when the loss changes by less so often in a row, or at the most


@final
@dataclass(kw_only=True)
class Regularizer(Descends, Centred, LargestScore):
    """Minimise ℓ₁ + ℓ₂ + `old` ‖W_b − W⁰_b‖ + `earlier` ‖W_e − W⁰_e‖ + `novel` ‖W_n − proj W_n‖² + ½ `decay` ‖W‖².

    ℓ₁ is the mean cross-entropy of the shots and of an image of each base class, ℓ₂ that of an image of each earlier
    novel class; W⁰ are weights at the end of the session that taught a class; proj is onto the base weights. The norms
    are no squares: weights stay exactly where they are until something pulls harder than `old` or `earlier`.
    """

    name = "regularizer"
    title = "Regularizer"
    citation = "Akyürek et al., Subspace Regularizers for Few-Shot Class Incremental Learning, ICLR 2022"
    differs = (
        "The shared backbone; activations of one length, centred where the backbone was not trained on them; the image "
        "of a class that is replayed is the one nearest to its mean, without augmentation."
    )
    trains = "head"
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS
    tried = {"lr": (0.002, 0.01, 0.05)}  # noqa: RUF012

    old: float = 0.2
    earlier: float = 0.1
    novel: float = 1.0
    decay: float = 5e-4
    lr: float | None = None  # the authors' is .002, on longer activations
    weights: Tensor = state()  # W [k d]
    anchors: Tensor = state()  # W⁰ [k d]
    base: int = state()  # classes
    span: Tensor = state()  # [d r], an orthonormal basis of the base weights
    memory: Tensor = state()  # [k d], one image per class

    def fit(self, base: Samples, task: Task) -> None:
        """Find the base classes' weights."""
        self.choose(base, task)
        labels, self.base = base.labels, base.classes
        self.find_centre(base, centred=not task.adapted)
        x, W = self.prepared(base.activations), torch.zeros(self.base, base.activations.shape[1])
        minimise_convex(W, lambda: functional.cross_entropy(x @ W.T, labels) + self.decay / 2 * W.square().sum())
        # Scores ignore what all rows of W share, so decay leaves none of it: k classes span k − 1 directions, and the
        # mean of their weights, which is rounding, is not one more.
        self.weights, self.span, self.memory = W, basis(W - W.mean(0)), nearest_to_mean(x, labels)
        self.anchors = W.clone()

    def learn(self, shots: Samples) -> None:
        """Find the weights of the new classes and let the others move a little."""
        known, d = self.weights.shape
        x = self.prepared(shots.activations)
        first = torch.cat([x, self.memory[: self.base]])
        first_labels = torch.cat([shots.labels, torch.arange(self.base)])
        second, second_labels = self.memory[self.base :], torch.arange(self.base, known)
        drawn = (2 * torch.rand(shots.classes - known, d, generator=self.generator) - 1) * d**-0.5
        W = torch.cat([self.weights, drawn]).requires_grad_()

        def smooth() -> Tensor:
            outside = W[known:] - projected(W[known:], self.span)
            loss = functional.cross_entropy(first @ W.T, first_labels) + self.novel * outside.square().sum()
            if len(second):
                loss = loss + functional.cross_entropy(second @ W.T, second_labels)
            return loss + self.decay / 2 * W.square().sum()

        self.steadily([W], lambda rate: self._descend(W, smooth, known, rate), smooth, self.value("lr"))
        self.weights = W.detach()
        self.anchors = torch.cat([self.anchors, self.weights[known:].clone()])
        self.memory = torch.cat([self.memory, nearest_to_mean(x, shots.labels - known)])

    def scores(self, queries: Queries) -> Tensor:
        """Give the product with each class's weights."""
        return self.prepared(queries.activations) @ self.weights.T

    def _descend(self, W: Tensor, smooth: Callable[[], Tensor], known: int, lr: float) -> None:
        """Take gradient steps of the smooth part; after each, the norms pull the old blocks back to their anchors."""
        optimiser = torch.optim.SGD([W], lr, momentum=MOMENTUM)
        blocks = ((slice(0, self.base), self.old), (slice(self.base, known), self.earlier))
        before, calm = torch.inf, 0
        for _ in range(MOST):
            loss = smooth()
            take_step(optimiser, loss)
            with torch.no_grad():
                total = float(loss)
                for rows, weight in blocks:
                    W[rows] = self.anchors[rows] + pulled_back(W[rows] - self.anchors[rows], lr * weight)
                    total += weight * float((W[rows] - self.anchors[rows]).norm())
            calm = calm + 1 if abs(before - total) < SMALL else 0
            before = total
            if calm == PATIENCE:
                return

    def prepared(self, activations: Tensor) -> Tensor:
        """Give centred activations of one length."""
        return SCALE * super().prepared(activations)


def pulled_back(moved: Tensor, by: float) -> Tensor:
    """Give the proximal step of by · ‖·‖: the block gets shorter by `by`, and is 0 if it was no longer than that."""
    share: Tensor = (1 - by / moved.norm().clamp_min(1e-12)).clamp_min(0)
    return moved * share


def nearest_to_mean(x: Tensor, labels: Tensor) -> Tensor:
    """Give for each class 0 … k − 1 the row nearest to the mean of its rows, [k d]."""
    classes = [x[positions] for positions in by_class(labels, 0)]
    return torch.stack([rows[(rows - rows.mean(0)).norm(dim=1).argmin()] for rows in classes])


def basis(W: Tensor) -> Tensor:
    """Give an orthonormal basis of the rows of W as columns [d r]; singular values of mere rounding do not count."""
    _, values, rows = torch.linalg.svd(W, full_matrices=False)
    independent: Tensor = rows[values > values[0] * max(W.shape) * torch.finfo(W.dtype).eps]
    return independent.T


def projected(w: Tensor, span: Tensor) -> Tensor:
    """Give the rows of w projected onto the span of orthonormal columns."""
    return w @ span @ span.T

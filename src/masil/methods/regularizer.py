"""Subspace regularisation: a novel class's weights are drawn into the span of the base classes' (Akyürek et al. 2022).

The original trains its backbone in the base session and only its linear classifier afterwards; here the backbone is the
shared one, so all that is trained is the classifier, on centred activations of fixed length. Its loss is convex, so its
minimum is found instead of approached. Where the original replays a stored image per class, the mean of the class's
activations is replayed.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.descent import settle
from masil.methods.method import Method
from masil.methods.taught import check_features, class_means, new_classes, taught

SCALE = 16.0  # length of the activations, that of a ResNet's; the weights below are relative to it


@final
class Regularizer(Method):
    """Minimise ℓ(W) + Σ_old λ ‖w − w₀‖² + `novel` Σ_new ‖w − proj w‖² + ½ `decay` ‖W‖², proj onto base weights.

    ℓ is the cross-entropy of the session's shots and of one mean per earlier class. w₀ are a class's weights at the end
    of the session that taught it; λ is `old` for base classes and `earlier` for novel ones of earlier sessions.
    """

    citation = "Akyürek et al., Subspace Regularizers for Few-Shot Class Incremental Learning, ICLR 2022"

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        old: float = 0.2,
        earlier: float = 0.1,
        novel: float = 1.0,
        decay: float = 5e-4,
    ) -> None:
        super().__init__(total=total, seed=seed)
        self.old, self.earlier, self.novel, self.decay = old, earlier, novel, decay
        self.centre_: Tensor | None = None  # [d]
        self.weights_: Tensor | None = None  # W [k d]
        self.anchors_: Tensor | None = None  # w₀ [k d]
        self.base_ = 0  # classes
        self.span_: Tensor | None = None  # [d r], an orthonormal basis of the base weights
        self.memory_: Tensor | None = None  # [k d], one mean per class

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Find the base classes' weights."""
        k = new_classes(activations, labels)
        self.centre_ = functional.normalize(activations.float()).mean(0)
        x, W = self._prepared(activations), torch.zeros(k, activations.shape[1])
        settle(W, lambda: functional.cross_entropy(x @ W.T, labels) + self.decay / 2 * W.square().sum())
        # Scores ignore what all rows of W share, so decay leaves none of it: k classes span k − 1 directions, and the
        # mean of their weights, which is rounding, is not one more.
        self.weights_, self.span_, self.memory_ = W, basis(W - W.mean(0)), class_means(x, labels)
        self.anchors_, self.base_ = W.clone(), k

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Find the weights of the new classes and let the others move a little."""
        before, anchors = taught(self.weights_), taught(self.anchors_)
        span, memory = taught(self.span_), taught(self.memory_)
        check_features(activations, before.shape[1])
        known = len(before)
        shots = self._prepared(activations)
        x, y = torch.cat([memory, shots]), torch.cat([torch.arange(known), labels])
        tie = torch.where(torch.arange(known) < self.base_, self.old, self.earlier)[:, None]
        W = torch.cat([before, torch.zeros(new_classes(activations, labels, known), before.shape[1])])

        def loss() -> Tensor:
            moved, outside = W[:known] - anchors, W[known:] - projected(W[known:], span)
            pull = (tie * moved.square()).sum() + self.novel * outside.square().sum()
            return functional.cross_entropy(x @ W.T, y) + pull + self.decay / 2 * W.square().sum()

        settle(W, loss)
        self.anchors_ = torch.cat([anchors, W[known:].clone()])
        self.weights_, self.memory_ = W, torch.cat([memory, class_means(shots, labels, known)])

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class with the largest product."""
        W = taught(self.weights_)
        check_features(activations, W.shape[1])
        return (self._prepared(activations) @ W.T).argmax(1)

    def _prepared(self, activations: Tensor) -> Tensor:
        return SCALE * functional.normalize(functional.normalize(activations.float()) - taught(self.centre_))


def basis(W: Tensor) -> Tensor:
    """Give an orthonormal basis of the rows of W as columns [d r]; singular values of mere rounding do not count."""
    _, values, rows = torch.linalg.svd(W, full_matrices=False)
    independent: Tensor = rows[values > values[0] * max(W.shape) * torch.finfo(W.dtype).eps]
    return independent.T


def projected(w: Tensor, span: Tensor) -> Tensor:
    """Give the rows of w projected onto the span of orthonormal columns."""
    return w @ span @ span.T

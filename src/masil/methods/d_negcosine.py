"""Cosine softmax with a negative margin: classes held apart less leave more room for new ones (Liu et al. 2020).

"Decoupled-NegCosine" in the FSCIL literature. The original trains its backbone with this loss; here a linear map of the
shared backbone's activations is trained, and, as there, a novel class is the mean of its shots after it.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import cosine_cross_entropy
from masil.methods.descent import descend, epochs
from masil.methods.learnt_map import BATCH, EPOCHS, RATE, LearntMap
from masil.methods.method import Method
from masil.methods.taught import check_features, class_means, new_classes, taught


@final
class DNegCosine(Method):
    """Train −log softmax_y(s (cos θ_j − m [j = y])) with m < 0 on the base session; then compare with class means.

    The margin is that of the original's cosine softmax with five shots on miniImageNet.
    """

    citation = "Liu et al., Negative Margin Matters: Understanding Margin in Few-Shot Classification, ECCV 2020"

    def __init__(self, *, total: int | None = None, seed: int = 0, margin: float = -0.02, scale: float = 30.0) -> None:
        super().__init__(total=total, seed=seed)
        self.margin, self.scale = margin, scale
        self.map_: LearntMap | None = None
        self.means_: Tensor | None = None  # [k d], after the map

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the map and a cosine classifier, of which the map is kept."""
        new_classes(activations, labels)
        g = LearntMap(activations)
        W = class_means(g(activations), labels)

        def loss(rows: Tensor) -> Tensor:
            return cosine_cross_entropy(g(activations[rows]), W, labels[rows], self.scale, self.margin)

        descend(
            [g.matrix, W],
            loss,
            len(labels),
            steps=epochs(EPOCHS, len(labels), BATCH),
            batch=BATCH,
            rate=RATE,
            generator=torch.Generator().manual_seed(self.seed),
        )
        self.map_, self.means_ = g, class_means(g(activations), labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append the means of classes k, k + 1, …"""
        g, means = taught(self.map_), taught(self.means_)
        check_features(activations, len(g.centre))
        new_classes(activations, labels, len(means))
        self.means_ = torch.cat([means, class_means(g(activations), labels, len(means))])

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class whose mean has the largest cosine."""
        z, vectors = self.geometry(activations)
        return (z @ vectors.T).argmax(1)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give mapped activations and class means."""
        g, means = taught(self.map_), taught(self.means_)
        check_features(activations, len(g.centre))
        return functional.normalize(g(activations)), functional.normalize(means)

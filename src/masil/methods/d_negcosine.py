"""Cosine softmax with a negative margin: classes held apart less leave more room for new ones (Liu et al. 2020).

"Decoupled-NegCosine" in the FSCIL literature. The original trains its backbone with this loss, as does its `recipe`; on
a shared backbone a linear map of activations is trained. The original then fits a cosine classifier to the shots; here,
as in the decoupled rows of that literature, a novel class is their mean.
"""

from typing import ClassVar, final

import torch
from torch import Tensor

from masil.collapse import cosine_cross_entropy
from masil.methods.learnt_map import LearntMap, MappedMeans, train_base
from masil.methods.method import Published
from masil.methods.taught import class_means, new_classes
from masil.training import Recipe


@final
class DNegCosine(MappedMeans):
    """Train −log softmax_y(s (cos θ_j − m [j = y])) with m < 0 on the base session; then compare with class means.

    The margin is that of the original's cosine softmax with five shots on miniImageNet.
    """

    citation = "Liu et al., Negative Margin Matters: Understanding Margin in Few-Shot Classification, ECCV 2020"
    needs_base_training = True
    published: ClassVar[Published] = {"cub200": {"margin": -0.01}}

    def __init__(self, *, total: int | None = None, seed: int = 0, margin: float = -0.02, scale: float = 30.0) -> None:
        super().__init__(total=total, seed=seed)
        self.margin, self.scale = margin, scale

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the map and a cosine classifier, of which the map is kept."""
        new_classes(activations, labels)
        g = LearntMap(activations, centred=not self.own_base)
        if not self.own_base:
            self._train(g, activations, labels)
        self.map_, self.means_ = g, class_means(g(activations), labels)

    def recipe(self, usual: Recipe, base: int) -> Recipe:  # noqa: ARG002
        """Train with the margin."""
        return usual.in_the_way_of("d-negcosine", cosine=1.0, margin=self.margin, cosine_scale=self.scale)

    def _train(self, g: LearntMap, activations: Tensor, labels: Tensor) -> None:
        W = class_means(g(activations), labels)

        def loss(rows: Tensor) -> Tensor:
            return cosine_cross_entropy(g(activations[rows]), W, labels[rows], self.scale, self.margin)

        train_base([g.matrix, W], loss, len(labels), torch.Generator().manual_seed(self.seed))

"""ALICE: a margin makes base classes compact, virtual classes make the features diverse (Peng et al. 2022).

The original trains its backbone so, on two views of each image, with a virtual class for every pair of classes, except
on fine-grained data, where it makes none. Its `recipe` does that on one view, fusing half of the images instead of
adding four fused ones for each, and without the projection that the original drops again. On a shared backbone a linear
map of activations is trained; images are mixed as activations; and each class has one virtual partner, drawn from the
seed. As there, the trained classifier is dropped and class means decide.
"""

from dataclasses import replace
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import cosine_cross_entropy
from masil.methods.learnt_map import LearntMap, MappedMeans, train_base
from masil.methods.method import Published
from masil.methods.taught import class_means, new_classes
from masil.training import Recipe, fusion_shares


@final
class Alice(MappedMeans):
    """Train with the angular penalty −log softmax_y(s (cos θ_j − m [j = y])) over classes and mixed pairs of classes.

    A base class is the mean of its `balanced` images nearest to its centre, so that base and novel classes rest on as
    many images.
    """

    citation = "Peng et al., Few-Shot Class-Incremental Learning from an Open-Set Perspective, ECCV 2022"
    needs_base_training = True
    published: ClassVar[Published] = {"cub200": {"virtual": False}}

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        margin: float = 0.4,
        scale: float = 30.0,
        balanced: int = 5,
        virtual: bool = True,
    ) -> None:
        super().__init__(total=total, seed=seed)
        self.margin, self.scale, self.balanced, self.virtual = margin, scale, balanced, virtual

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the map on images and mixed images, then average the most central images of each class."""
        k = new_classes(activations, labels)
        g = LearntMap(activations, centred=not self.own_base)
        if not self.own_base:
            self._train(g, activations, labels, k)
        self.map_, self.means_ = g, central_means(g(activations), labels, self.balanced)

    def recipe(self, usual: Recipe, base: int) -> Recipe:  # noqa: ARG002
        """Train with the margin, half of the images fused."""
        own = usual.in_the_way_of("alice", cosine=1.0, margin=self.margin, cosine_scale=self.scale)
        return replace(own, rotated=0.0, fused=0.5 if self.virtual else 0.0)

    def _train(self, g: LearntMap, activations: Tensor, labels: Tensor, k: int) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        ring = torch.randperm(k, generator=generator)
        partner = torch.empty(k, dtype=torch.int64)
        partner[ring] = ring.roll(1)  # a class's partner; k + c is the virtual class of c and its partner
        means = class_means(g(activations), labels)
        W = torch.cat([means, (means + means[partner]) / 2])

        def loss(rows: Tensor) -> Tensor:
            x, y = g.centred(activations[rows]), labels[rows]
            if not self.virtual:
                return cosine_cross_entropy(x @ g.matrix, W[:k], y, self.scale, self.margin)
            first, second = partners(y, partner)
            share = fusion_shares(len(first), generator)[:, None]
            mixed = share * x[first] + (1 - share) * x[second]
            z, targets = torch.cat([x, mixed]) @ g.matrix, torch.cat([y, k + y[first]])
            return cosine_cross_entropy(z, W, targets, self.scale, self.margin)

        train_base([g.matrix, W], loss, len(labels), generator)


def partners(labels: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
    """Give rows of a batch and, for each, the first row of its partner class, where the batch has one."""
    n = len(labels)
    first_of = torch.full((len(partner),), n).scatter_reduce_(0, labels, torch.arange(n), "amin")
    second = first_of[partner[labels]]
    rows = ((second < n) & (partner[labels] != labels)).nonzero()[:, 0]
    return rows, second[rows]


def central_means(z: Tensor, labels: Tensor, count: int) -> Tensor:
    """Give for every class the mean of the `count` rows with the largest cosine to its mean, [k d]."""
    means = class_means(z, labels)
    cosines = functional.cosine_similarity(z, means[labels])
    return torch.stack(
        [
            z[own[cosines[own].topk(min(count, len(own))).indices]].mean(0)
            for own in ((labels == label).nonzero()[:, 0] for label in range(len(means)))
        ]
    )

"""ALICE: a margin makes base classes compact, virtual classes make the features diverse (Peng et al. 2022).

The original trains its backbone so, on two views of each image, with a virtual class for every pair of classes. Here a
linear map of the shared backbone's activations is trained, on one view; images are mixed as activations; and each class
has one virtual partner, drawn from the seed. As there, the trained classifier is dropped and class means decide.
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

NARROW, WIDE = 0.4, 0.6  # the share of the first image in a mixed one


@final
class Alice(Method):
    """Train with the angular penalty log softmax_y(s (cos θ_j − m [j = y])) over classes and mixed pairs of classes.

    A base class is the mean of its `balanced` images nearest to its centre, so that base and novel classes rest on as
    many images.
    """

    citation = "Peng et al., Few-Shot Class-Incremental Learning from an Open-Set Perspective, ECCV 2022"

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        margin: float = 0.4,
        scale: float = 30.0,
        balanced: int = 5,
    ) -> None:
        super().__init__(total=total, seed=seed)
        self.margin, self.scale, self.balanced = margin, scale, balanced
        self.map_: LearntMap | None = None
        self.means_: Tensor | None = None  # [k d], after the map

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the map on images and mixed images, then average the most central images of each class."""
        k = new_classes(activations, labels)
        generator = torch.Generator().manual_seed(self.seed)
        g = LearntMap(activations)
        ring = torch.randperm(k, generator=generator)
        partner = torch.empty(k, dtype=torch.int64)
        partner[ring] = ring.roll(1)  # a class's partner; k + c is the virtual class of c and its partner
        means = class_means(g(activations), labels)
        W = torch.cat([means, (means + means[partner]) / 2])

        def loss(rows: Tensor) -> Tensor:
            x, y = g.centred(activations[rows]), labels[rows]
            first, second = partners(y, partner)
            share = NARROW + (WIDE - NARROW) * torch.rand(len(first), 1, generator=generator)
            mixed = share * x[first] + (1 - share) * x[second]
            z, targets = torch.cat([x, mixed]) @ g.matrix, torch.cat([y, k + y[first]])
            return cosine_cross_entropy(z, W, targets, self.scale, self.margin)

        steps = epochs(EPOCHS, len(labels), BATCH)
        descend([g.matrix, W], loss, len(labels), steps=steps, batch=BATCH, rate=RATE, generator=generator)
        self.map_, self.means_ = g, central_means(g(activations), labels, self.balanced)

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

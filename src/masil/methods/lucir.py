"""LUCIR: cosines, embeddings that must not turn, and a margin between old classes and new (Hou et al. 2019).

Listed as "NCM" in the tables of the FSCIL literature. The original trains its whole network in every session. Here the
backbone is the shared one and stays frozen; a linear map of its activations and the class vectors are trained, and
exemplars are kept as activations. The rivals' terms are summed, as in the paper (the code averages them); the optional
balanced fine-tuning at the end of a session is left out.
"""

import math
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import cosine_cross_entropy
from masil.methods.exemplars import EACH, Exemplars
from masil.methods.growing_net import SCALE, GrowingNet, train_session
from masil.methods.learnt_map import train_base
from masil.methods.method import NearestVector
from masil.methods.taught import check_features, class_means, new_classes, taught


@final
class Lucir(NearestVector):
    """Train cosine cross-entropy + λ (1 − cos(z before, z)) + Σ_j max(0, m − cos(z, w_y) + cos(z, w_j)).

    λ is `keep` · √(old classes / new classes). The last term is for exemplars, over the `rivals` new classes nearest to
    each. Vectors of old classes stay as they are; those of new classes start at their means. The scale is fixed.
    """

    citation = "Hou et al., Learning a Unified Classifier Incrementally via Rebalancing, CVPR 2019"
    keeps_images = True

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        exemplars: int = EACH,
        keep: float = 5.0,
        margin: float = 0.5,
        rivals: int = 2,
    ) -> None:
        super().__init__(total=total, seed=seed)
        self.exemplars = exemplars
        self.keep, self.margin, self.rivals = keep, margin, rivals
        self.net_: GrowingNet | None = None
        self.memory_: Exemplars | None = None

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train a cosine classifier, then choose exemplars."""
        new_classes(activations, labels)
        self.generator_ = torch.Generator().manual_seed(self.seed)
        net = GrowingNet(activations)
        net.grow(class_means(net.embed(activations), labels))

        def loss(rows: Tensor) -> Tensor:
            return cosine_cross_entropy(net.embed(activations[rows]), net.rows, labels[rows], SCALE)

        train_base([net.map.matrix, net.rows], loss, len(labels), self.generator_)
        self.net_, self.memory_ = net, Exemplars(activations.shape[1], self.exemplars)
        self.memory_.add(activations, labels, net.embed)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Train on exemplars and shots, then choose exemplars among the shots."""
        net, memory = taught(self.net_), taught(self.memory_)
        check_features(activations, net.rows.shape[1])
        known = len(net.rows)
        new = new_classes(activations, labels, known)
        a, y = memory.with_shots(activations, labels)
        before, old = net.embed(a), net.rows
        rows_new = functional.normalize(class_means(net.embed(activations), labels, known))
        weight = self.keep * math.sqrt(known / new)

        def loss(rows: Tensor) -> Tensor:
            z, vectors = net.embed(a[rows]), torch.cat([old, rows_new])
            turned = 1 - (z * before[rows]).sum(1).mean()
            apart = margin_ranking(z, vectors, y[rows], known, self.margin, self.rivals)
            return cosine_cross_entropy(z, vectors, y[rows], SCALE) + weight * turned + apart

        train_session([net.map.matrix, rows_new], loss, len(y), self.generator_)
        net.grow(rows_new)
        memory.add(activations, labels, net.embed)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give embeddings and class vectors."""
        net = taught(self.net_)
        check_features(activations, net.rows.shape[1])
        return net.embed(activations), functional.normalize(net.rows)


def margin_ranking(z: Tensor, vectors: Tensor, labels: Tensor, known: int, margin: float, rivals: int) -> Tensor:
    """Give the mean over rows of the `known` classes of Σ max(0, m − cos(z, w_y) + cos(z, w_j)), j the nearest new."""
    cosines = z @ functional.normalize(vectors).T
    rows = (labels < known).nonzero()[:, 0]
    if not len(rows):
        return cosines.new_zeros(())
    own = cosines[rows, labels[rows]][:, None]
    others = cosines[rows, known:]
    return (margin - own + others.topk(min(rivals, others.shape[1]), 1).values).relu().sum(1).mean()

"""iCaRL: exemplars are replayed, old outputs distilled, the nearest mean of exemplars decides (Rebuffi et al. 2017).

The original trains its whole network in every session. Here the backbone is frozen, the shared one or one trained with
iCaRL's loss by its `recipe`; a linear map of its activations is what sessions train and what drifts, and exemplars are
kept as activations. It therefore forgets far less than the published figures, whose network drifts as a whole.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.exemplars import EACH, Exemplars
from masil.methods.growing_net import SCALE, GrowingNet, train_session
from masil.methods.learnt_map import train_base
from masil.methods.method import NearestVector
from masil.methods.taught import check_features, class_means, new_classes, taught
from masil.training import Recipe


@final
class ICaRL(NearestVector):
    """Train one sigmoid per class, new ones towards labels and old ones towards what they said before the session.

    The sigmoids are of scaled cosines. A class is the mean of its exemplars' unit embeddings, worked out anew after
    every session.
    """

    citation = "Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017"
    keeps_images = True
    needs_base_training = True

    def __init__(self, *, total: int | None = None, seed: int = 0, exemplars: int = EACH) -> None:
        super().__init__(total=total, seed=seed)
        self.exemplars = exemplars
        self.net_: GrowingNet | None = None
        self.memory_: Exemplars | None = None

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train on the labels alone, on a backbone of its own the sigmoids and no map, then choose exemplars."""
        new_classes(activations, labels)
        self.generator_ = torch.Generator().manual_seed(self.seed)
        net = GrowingNet(activations, centred=not self.own_base)
        net.grow(class_means(net.embed(activations), labels), bias=-SCALE / 2)

        def loss(rows: Tensor) -> Tensor:
            return sigmoid_loss(net.logits(activations[rows]), labels[rows])

        learnt = [net.rows, net.bias] if self.own_base else [net.map.matrix, net.rows, net.bias]
        train_base(learnt, loss, len(labels), self.generator_)
        self.net_, self.memory_ = net, Exemplars(activations.shape[1], self.exemplars)
        self.memory_.add(activations, labels, net.embed)

    def recipe(self, usual: Recipe, base: int) -> Recipe:  # noqa: ARG002
        """Train one sigmoid a class."""
        return usual.in_the_way_of("icarl", binary=1.0, cosine_scale=SCALE)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Train on exemplars and shots, then choose exemplars among the shots."""
        net, memory = taught(self.net_), taught(self.memory_)
        check_features(activations, net.rows.shape[1])
        known = len(net.rows)
        new_classes(activations, labels, known)
        a, y = memory.with_shots(activations, labels)
        before = torch.sigmoid(net.logits(a))
        net.grow(class_means(net.embed(activations), labels, known), bias=-SCALE / 2)

        def loss(rows: Tensor) -> Tensor:
            return sigmoid_loss(net.logits(a[rows]), y[rows], before[rows])

        train_session([net.map.matrix, net.rows, net.bias], loss, len(y), self.generator_)
        memory.add(activations, labels, net.embed)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give embeddings and the means of exemplars."""
        net, memory = taught(self.net_), taught(self.memory_)
        check_features(activations, net.rows.shape[1])
        means = class_means(net.embed(memory.activations), memory.labels)
        return net.embed(activations), functional.normalize(means)


def sigmoid_loss(logits: Tensor, labels: Tensor, before: Tensor | None = None) -> Tensor:
    """Give Σ_j BCE(σ(logit_j), target_j), targets being [j = y], and for the first classes what was said `before`."""
    targets = functional.one_hot(labels, logits.shape[1]).float()
    if before is not None:
        targets[:, : before.shape[1]] = before
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()

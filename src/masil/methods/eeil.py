"""EEIL: a softmax trained on labels and on its own past answers, then balanced (Castro et al. 2018).

The original trains its whole network end to end, with image augmentation and noise on gradients. Here the backbone is
the shared one and stays frozen; a linear map of its activations and the classifier are trained, without noise, and
exemplars are kept as activations.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.exemplars import EACH, Exemplars
from masil.methods.growing_net import GrowingNet, train_session
from masil.methods.learnt_map import train_base
from masil.methods.method import Method
from masil.methods.taught import check_features, class_means, new_classes, taught

TEMPERATURE = 2.0
LAST_TOUCH = 0.1  # the rate of balanced fine-tuning, relative to that of the session


@final
class EEIL(Method):
    """Train cross-entropy over all classes plus distillation of every earlier session's group of classes.

    Then fine-tune on as many images of every class, distilling the new classes too. The classifier itself decides.
    """

    citation = "Castro et al., End-to-End Incremental Learning, ECCV 2018"
    keeps_images = True

    def __init__(self, *, total: int | None = None, seed: int = 0, exemplars: int = EACH) -> None:
        super().__init__(total=total, seed=seed)
        self.exemplars = exemplars
        self.net_: GrowingNet | None = None
        self.memory_: Exemplars | None = None
        self.groups_: list[int] = []  # classes of each session

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train on the labels alone, then choose exemplars."""
        k = new_classes(activations, labels)
        self.generator_ = torch.Generator().manual_seed(self.seed)
        net = GrowingNet(activations)
        net.grow(class_means(net.embed(activations), labels))

        def loss(rows: Tensor) -> Tensor:
            return functional.cross_entropy(net.logits(activations[rows]), labels[rows])

        train_base([net.map.matrix, net.rows, net.bias], loss, len(labels), self.generator_)
        self.net_, self.memory_, self.groups_ = net, Exemplars(activations.shape[1], self.exemplars), [k]
        self.memory_.add(activations, labels, net.embed)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Train on exemplars and shots, choose exemplars, then balance."""
        net, memory = taught(self.net_), taught(self.memory_)
        check_features(activations, net.rows.shape[1])
        known = len(net.rows)
        new = new_classes(activations, labels, known)
        a, y = memory.with_shots(activations, labels)
        before = net.logits(a)
        net.grow(class_means(net.embed(activations), labels, known))
        self._train(a, y, before)
        self.groups_.append(new)
        memory.add(activations, labels, net.embed)
        even = balanced(memory.labels)
        a, y = memory.activations[even], memory.labels[even]
        self._train(a, y, net.logits(a), share=LAST_TOUCH)

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class with the largest logit."""
        net = taught(self.net_)
        check_features(activations, net.rows.shape[1])
        return net.logits(activations).argmax(1)

    def _train(self, a: Tensor, y: Tensor, before: Tensor, share: float = 1.0) -> None:
        net = taught(self.net_)

        def loss(rows: Tensor) -> Tensor:
            logits = net.logits(a[rows])
            return functional.cross_entropy(logits, y[rows]) + distillation(logits, before[rows], self.groups_)

        train_session([net.map.matrix, net.rows, net.bias], loss, len(y), self.generator_, share)


def distillation(logits: Tensor, before: Tensor, groups: list[int]) -> Tensor:
    """Give Σ over groups of classes of the cross-entropy between softmaxes before and now, at temperature T."""
    total = logits.new_zeros(())
    for now, then in zip(torch.split(logits[:, : sum(groups)], groups, 1), torch.split(before, groups, 1), strict=True):
        total = total + functional.cross_entropy(now / TEMPERATURE, torch.softmax(then / TEMPERATURE, 1))
    return total


def balanced(labels: Tensor) -> Tensor:
    """Give rows with as many of every class as the smallest class has, the first ones of each."""
    least = int(torch.bincount(labels).min())
    return torch.cat([(labels == label).nonzero()[:least, 0] for label in range(int(labels.max()) + 1)])

"""EEIL: a softmax trained on labels and on its own past answers, then balanced (Castro et al. 2018)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.method import LargestScore, Queries, Samples, Task, state
from masil.methods.replay import Replay
from masil.protocol import by_class

TEMPERATURE = 2.0
LAST_TOUCH = 0.1  # the rate of balanced fine-tuning, relative to that of the session


@final
@dataclass(kw_only=True)
class EEIL(Replay, LargestScore):
    """Train cross-entropy over all classes plus distillation of every earlier session's group of classes.

    Then fine-tune on as many images of every class, distilling the new classes too. The classifier itself decides.
    """

    name = "eeil"
    title = "EEIL"
    citation = "Castro et al., End-to-End Incremental Learning, ECCV 2018"
    differs = (
        "The original trains its whole network end to end, with noise on gradients. Here the backbone is frozen, and a "
        "linear map of its activations and the classifier are trained, without noise."
    )
    groups: list[int] = state()  # classes of each session

    def fit(self, base: Samples, task: Task) -> None:
        """Train on the labels alone, then choose exemplars."""
        super().fit(base, task)
        self.groups = [len(self.rows)]

    def learn(self, shots: Samples) -> None:
        """Train on exemplars and shots, choose exemplars, then balance."""
        rehearsed = self.memory.joined(shots)
        before = self.logits(rehearsed.activations)
        self.grow(self.new_means(shots))
        self._train(rehearsed, before)
        self.groups = [*self.groups, len(self.rows) - sum(self.groups)]
        self.choose_exemplars(shots)
        even = self.memory.some(balanced(self.memory.labels))
        self._train(even, self.logits(even.activations), share=LAST_TOUCH)

    def scores(self, queries: Queries) -> Tensor:
        """Give the logits."""
        return self.logits(queries.activations)

    def _train(self, rehearsed: Samples, before: Tensor, share: float = 1.0) -> None:
        labels = rehearsed.labels

        def loss(rows: Tensor) -> Tensor:
            logits = self.logits(rehearsed.activations[rows])
            return functional.cross_entropy(logits, labels[rows]) + distillation(logits, before[rows], self.groups)

        self.train_session([self.g.matrix, self.rows, self.bias], loss, labels, share)


def distillation(logits: Tensor, before: Tensor, groups: list[int]) -> Tensor:
    """Give Σ over groups of classes of the cross-entropy between softmaxes before and now, at temperature T."""
    total = logits.new_zeros(())
    for now, then in zip(torch.split(logits[:, : sum(groups)], groups, 1), torch.split(before, groups, 1), strict=True):
        total = total + functional.cross_entropy(now / TEMPERATURE, torch.softmax(then / TEMPERATURE, 1))
    return total


def balanced(labels: Tensor) -> Tensor:
    """Give rows with as many of every class as the smallest class has, the first ones of each."""
    least = int(torch.bincount(labels).min())
    return torch.cat([positions[:least] for positions in by_class(labels, 0)])

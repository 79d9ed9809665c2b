"""LUCIR: cosines, embeddings that must not turn, and a margin between old classes and new (Hou et al. 2019).

Listed as "NCM" in the tables of the FSCIL literature.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import cosine_cross_entropy
from masil.methods.method import NearestVector, Samples, Task
from masil.methods.replay import SCALE, Replay


@final
@dataclass(kw_only=True)
class Lucir(Replay, NearestVector):
    """Train cosine cross-entropy + λ (1 − cos(z before, z)) + mean_j max(0, m − cos(z, w_y) + cos(z, w_j)).

    λ is `keep` · √(old classes / new classes). The last term is for exemplars, over the `rivals` new classes nearest to
    each. Vectors of old classes stay as they are; those of new classes start at their means. The scale is fixed.
    """

    name = "lucir"
    title = "NCM (LUCIR)"
    citation = "Hou et al., Learning a Unified Classifier Incrementally via Rebalancing, CVPR 2019"
    differs = (
        "The original trains its whole network in every session; here a linear map of frozen activations and the class "
        "vectors, on batches with as many rows of every class instead of balanced fine-tuning at the end."
    )
    keep: float = 5.0
    margin: float = 0.5
    rivals: int = 2

    def fit(self, base: Samples, task: Task) -> None:
        """Train a cosine classifier, then choose exemplars."""
        super().fit(base, task)
        self.vectors = self.rows

    def learn(self, shots: Samples) -> None:
        """Train on exemplars and shots, then choose exemplars among the shots."""
        rehearsed, old, known = self.memory.joined(shots), self.rows, len(self.rows)
        activations, labels = rehearsed.activations, rehearsed.labels
        before = self.unit(activations)
        self.grow(self.new_means(shots))
        added = self.rows[known:].clone()
        weight = self.keep * math.sqrt(known / len(added))

        def loss(rows: Tensor) -> Tensor:
            z, vectors = self.unit(activations[rows]), torch.cat([old, added])
            turned = 1 - (z * before[rows]).sum(1).mean()
            apart = margin_ranking(
                z @ functional.normalize(vectors).T, labels[rows], known, margin=self.margin, rivals=self.rivals
            )
            return cosine_cross_entropy(z, vectors, labels[rows], SCALE) + weight * turned + apart

        self.train_session([self.g.matrix, added], loss, labels)
        self.rows = torch.cat([old, functional.normalize(added)])
        self.choose_exemplars(shots)
        self.vectors = self.rows


def margin_ranking(cosines: Tensor, labels: Tensor, known: int, margin: float, rivals: int) -> Tensor:
    """Give the mean over rows of the `known` classes of max(0, m − cos(z, w_y) + cos(z, w_j)), j the nearest new."""
    rows = (labels < known).nonzero()[:, 0]
    if not len(rows):
        return cosines.new_zeros(())
    to_own = cosines[rows, labels[rows]][:, None]
    to_new = cosines[rows, known:]
    return (margin - to_own + to_new.topk(min(rivals, to_new.shape[1]), 1).values).relu().mean()

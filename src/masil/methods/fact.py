"""FACT: room is reserved for classes to come, by virtual prototypes that base training keeps free (Zhou et al. 2022).

The original trains its backbone so and mixes the features of a middle layer. Here a linear map of the shared backbone's
activations is trained, and activations are what is mixed.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.methods.descent import descend, epochs
from masil.methods.learnt_map import BATCH, EPOCHS, RATE, LearntMap
from masil.methods.method import Method
from masil.methods.taught import check_features, check_total, class_means, new_classes, taught


@final
class Fact(Method):
    """Train ℓ(f, y) + γ (ℓ(f without y, v) + ℓ(f', v') + ℓ(f' without v', y')), f' of mixed rows, then use class means.

    f are scaled cosines to base classes and fixed virtual prototypes; v is the virtual prototype nearest to a row, y'
    the base class nearest to a mixed one. `balance` is γ. To predict, `eta` of a class's probability comes by way of
    the virtual prototypes that are near to both the image and the class.
    """

    citation = "Zhou et al., Forward Compatible Few-Shot Class-Incremental Learning, CVPR 2022"
    needs_total_classes = True

    def __init__(
        self,
        *,
        total: int | None = None,
        seed: int = 0,
        balance: float = 0.01,
        eta: float = 0.1,
        scale: float = 16.0,
    ) -> None:
        super().__init__(total=total, seed=seed)
        self.balance, self.eta, self.scale = balance, eta, scale
        self.map_: LearntMap | None = None
        self.virtual_: Tensor | None = None  # [r d], unit length, for the r classes to come
        self.means_: Tensor | None = None  # [k d], after the map

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the map with as many virtual prototypes as classes are still to come."""
        k = new_classes(activations, labels)
        reserved = check_total(self.total, k) - k
        generator = torch.Generator().manual_seed(self.seed)
        g = LearntMap(activations)
        W = class_means(g(activations), labels)
        virtual = functional.normalize(torch.randn(reserved, len(g.centre), generator=generator))

        def loss(rows: Tensor) -> Tensor:
            x, y = g.centred(activations[rows]), labels[rows]
            f = self._cosines(x @ g.matrix, W, virtual)
            total = functional.cross_entropy(f[:, :k], y)
            if not reserved:
                return total
            order = torch.randperm(len(y), generator=generator)
            share = torch.rand(3, generator=generator).median()  # Beta(2, 2), that of the original
            differ = y != y[order]
            mixed = (share * x + (1 - share) * x[order])[differ]
            reserve = masked_loss(f, y, k + f[:, k:].argmax(1))
            if len(mixed):
                f = self._cosines(mixed @ g.matrix, W, virtual)
                guess = k + f[:, k:].argmax(1)
                reserve = reserve + functional.cross_entropy(f, guess) + masked_loss(f, guess, f[:, :k].argmax(1))
            return total + self.balance * reserve

        steps = epochs(EPOCHS, len(labels), BATCH)
        descend([g.matrix, W], loss, len(labels), steps=steps, batch=BATCH, rate=RATE, generator=generator)
        self.map_, self.virtual_, self.means_ = g, virtual, class_means(g(activations), labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Append the means of classes k, k + 1, …"""
        g, means = taught(self.map_), taught(self.means_)
        check_features(activations, len(g.centre))
        new_classes(activations, labels, len(means))
        self.means_ = torch.cat([means, class_means(g(activations), labels, len(means))])

    def predict(self, activations: Tensor) -> Tensor:
        """Give the likeliest class: (1 − η) softmax(cosines to means) + η softmax(cosines by way of prototypes)."""
        z, vectors = self.geometry(activations)
        virtual = taught(self.virtual_)
        direct = torch.softmax(self.scale * z @ vectors.T, 1)
        by_way = torch.softmax(z @ virtual.T @ (virtual @ vectors.T), 1)
        return ((1 - self.eta) * direct + self.eta * by_way).argmax(1)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give mapped activations and class means."""
        g, means = taught(self.map_), taught(self.means_)
        check_features(activations, len(g.centre))
        return functional.normalize(g(activations)), functional.normalize(means)

    def _cosines(self, z: Tensor, W: Tensor, virtual: Tensor) -> Tensor:
        return self.scale * functional.normalize(z) @ torch.cat([functional.normalize(W), virtual]).T


def masked_loss(logits: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:
    """Give the cross-entropy to `labels` when each row's class `hidden` is out of the race."""
    return functional.cross_entropy(logits.scatter(1, hidden[:, None], -1e9), labels)

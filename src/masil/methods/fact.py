"""FACT: room is reserved for classes to come, by virtual prototypes that base training keeps free (Zhou et al. 2022).

The original trains its backbone so and mixes the features of a middle layer; its `recipe` mixes activations, the last
features of all. On a shared backbone a linear map of activations is trained in the same way.
"""

from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import reserve, reserve_mixed, virtual_prototypes
from masil.methods.learnt_map import LearntMap, MappedMeans, train_base
from masil.methods.method import Published
from masil.methods.taught import check_total, class_means, new_classes, taught
from masil.training import Recipe

VOTERS = 40  # prototypes nearest to an image; the others have no say


@final
class Fact(MappedMeans):
    """Train ℓ(f, y) + γ (ℓ(f without y, v) + ℓ(f', v') + ℓ(f' without v', y')), f' of mixed rows, then use class means.

    f are scaled cosines to base classes and fixed virtual prototypes, orthogonal to one another; v is the virtual
    prototype nearest to a row, y' the base class nearest to a mixed one. `balance` is γ. To predict, `eta` of a class's
    probability comes by way of the 40 virtual prototypes nearest to the image, as far as they are near to the class.
    """

    citation = "Zhou et al., Forward Compatible Few-Shot Class-Incremental Learning, CVPR 2022"
    needs_base_training = True
    needs_total_classes = True
    published: ClassVar[Published] = {"cifar100": {"balance": 0.001}}

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
        self.virtual_: Tensor | None = None  # [r d], unit length, for the r classes to come

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the map with as many virtual prototypes as classes are still to come."""
        k = new_classes(activations, labels)
        g = LearntMap(activations, centred=not self.own_base)
        virtual = virtual_prototypes(check_total(self.total, k) - k, len(g.centre))
        if not self.own_base:
            self._train(g, activations, labels, virtual)
        self.map_, self.virtual_, self.means_ = g, virtual, class_means(g(activations), labels)

    def recipe(self, usual: Recipe, base: int) -> Recipe:
        """Train with prototypes for the classes to come."""
        to_come = check_total(self.total, base) - base
        return usual.in_the_way_of(
            "fact", cosine=1.0, cosine_scale=self.scale, prototypes=to_come, prototype_weight=self.balance
        )

    def _train(self, g: LearntMap, activations: Tensor, labels: Tensor, virtual: Tensor) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        W = class_means(g(activations), labels)
        k = len(W)

        def loss(rows: Tensor) -> Tensor:
            x, y = g.centred(activations[rows]), labels[rows]
            f = self._cosines(x @ g.matrix, W, virtual)
            total = functional.cross_entropy(f[:, :k], y)
            if not len(virtual):
                return total
            order = torch.randperm(len(y), generator=generator)
            share = torch.rand(3, generator=generator).median()  # Beta(2, 2), the original's default
            differ = y != y[order]
            mixed = (share * x + (1 - share) * x[order])[differ]
            kept_free = reserve(f, y, k)
            if len(mixed):
                kept_free = kept_free + reserve_mixed(self._cosines(mixed @ g.matrix, W, virtual), k)
            return total + self.balance * kept_free

        train_base([g.matrix, W], loss, len(labels), generator)

    def predict(self, activations: Tensor) -> Tensor:
        """Give the likeliest class: (1 − η) softmax(cosines to means) + η softmax(cosines by way of prototypes)."""
        z, vectors = self.geometry(activations)
        virtual = taught(self.virtual_)
        direct = torch.softmax(self.scale * z @ vectors.T, 1)
        near = z @ virtual.T
        heard = near.topk(min(VOTERS, len(virtual)), 1)
        near = torch.zeros_like(near).scatter(1, heard.indices, heard.values)
        by_way = torch.softmax(near @ (virtual @ vectors.T), 1)
        return ((1 - self.eta) * direct + self.eta * by_way).argmax(1)

    def _cosines(self, z: Tensor, W: Tensor, virtual: Tensor) -> Tensor:
        return self.scale * functional.normalize(z) @ torch.cat([functional.normalize(W), virtual]).T

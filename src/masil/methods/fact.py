"""FACT: virtual prototypes keep room free for classes to come (Zhou et al. 2022)."""

from dataclasses import dataclass, field
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import orthogonal_frame
from masil.methods.mapped_means import MappedMeans
from masil.methods.method import Published, Queries, Samples, Task, state
from masil.protocol import Protocol
from masil.training import CosineLoss

VOTERS = 40  # prototypes nearest to an image; the others have no say


@final
@dataclass(eq=False, kw_only=True)
class FactLoss(CosineLoss):
    """ℓ(f, y) + γ (ℓ(f without y, v) + ℓ(f', v') + ℓ(f' without v', y')), f' of mixed rows.

    f are scaled cosines to base classes and to fixed virtual prototypes, orthogonal to one another; v is the virtual
    prototype nearest to a row, y' the base class nearest to a mixed one. `weight` is γ.
    """

    name: ClassVar[str] = "fact"
    prototypes: int = 40  # for the classes to come
    weight: float = 0.01
    free: Tensor = field(init=False, repr=False)  # [r d], unit length

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the class vectors; the prototypes are the same ones every time."""
        super().build(features, classes, generator)
        self.register_buffer("free", virtual_prototypes(self.prototypes, features), persistent=False)
        return self

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the cross-entropy, and what keeps the prototypes free."""
        loss = super().forward(activations, labels, partners, lam)
        if not self.prototypes:
            return loss
        assert self.vectors is not None
        rows = self.scale * torch.cat([functional.normalize(self.vectors), self.free])
        return loss + self.weight * keep_free(activations, labels, rows, len(self.vectors))


@final
@dataclass(kw_only=True)
class Fact(MappedMeans):
    """Train with prototypes of the classes to come, then use class means.

    To predict, `eta` of a class's probability comes by way of the 40 virtual prototypes nearest to the image, as far as
    they are near to the class.
    """

    name = "fact"
    title = "FACT"
    citation = "Zhou et al., Forward Compatible Few-Shot Class-Incremental Learning, CVPR 2022"
    differs = (
        "The original mixes the features of a middle layer; here activations are mixed, the last features of all. "
        "On a shared backbone a linear map of activations is trained in the same way."
    )
    needs_total = True
    published: ClassVar[Published] = {"cifar100": {"balance": 0.001}}

    balance: float = 0.01
    eta: float = 0.1
    scale: float = 16.0
    free: Tensor = state()  # [r d], unit length, for the r classes to come

    def loss(self, protocol: Protocol) -> FactLoss:
        """Give the loss, with as many prototypes as classes are still to come."""
        to_come = protocol.classes - protocol.base_classes
        return FactLoss(scale=self.scale, prototypes=to_come, weight=self.balance)

    def fit(self, base: Samples, task: Task) -> None:
        """Train, and keep the prototypes."""
        super().fit(base, task)
        self.free = virtual_prototypes(task.protocol.classes - len(self.vectors), base.activations.shape[1])

    def predict(self, queries: Queries) -> Tensor:
        """Give the likeliest class: (1 − η) softmax(cosines to means) + η softmax(cosines by way of prototypes)."""
        z, vectors = self.geometry(queries)
        direct = torch.softmax(self.scale * z @ vectors.T, 1)
        near = z @ self.free.T
        heard = near.topk(min(VOTERS, len(self.free)), 1)
        near = torch.zeros_like(near).scatter(1, heard.indices, heard.values)
        by_way = torch.softmax(near @ (self.free @ vectors.T), 1)
        return ((1 - self.eta) * direct + self.eta * by_way).argmax(1)


def virtual_prototypes(count: int, features: int) -> Tensor:
    """Give `count` unit vectors [r d], orthogonal if there is room for that, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    if 0 < count <= features:
        return orthogonal_frame(count, features, generator)
    return functional.normalize(torch.randn(count, features, generator=generator))


def keep_free(activations: Tensor, labels: Tensor, rows: Tensor, k: int) -> Tensor:
    """Give FACT's loss beside the cross-entropy; `rows` [k+r d] give the logits of k classes, then of r prototypes.

    Each image is mixed with the one before it. Their shares are the quantiles of Beta(2, 2), whose distribution
    function 3x² − 2x³ is inverted by x = ½ − sin(asin(1 − 2u)/3): the batch is in random order, so none is drawn.
    """
    loss = reserve(functional.normalize(activations) @ rows.T, labels, k)
    n = len(labels)
    u = (torch.arange(n, device=activations.device) + 0.5) / n
    share = (0.5 - torch.sin(torch.asin(1 - 2 * u) / 3))[:, None].to(activations.dtype)
    mixed = torch.lerp(activations.roll(1, 0), activations, share)[labels != labels.roll(1)]
    return loss + reserve_mixed(functional.normalize(mixed) @ rows.T, k) if len(mixed) else loss


def reserve(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """Give the mean loss that keeps a prototype near every class: without class y, the best prototype should win.

    The logits [n k+r] are those of k classes and then of r prototypes.
    """
    return cross_entropy_without(logits, labels, k + logits[:, k:].argmax(1))


def reserve_mixed(logits: Tensor, k: int) -> Tensor:
    """Give the mean loss of images mixed of two classes: their best prototype should win, and without it a class."""
    guess = k + logits[:, k:].argmax(1)
    return functional.cross_entropy(logits, guess) + cross_entropy_without(logits, guess, logits[:, :k].argmax(1))


def cross_entropy_without(logits: Tensor, hidden: Tensor, labels: Tensor) -> Tensor:
    """Give the cross-entropy to `labels` when each row's class `hidden` is out of the race."""
    return functional.cross_entropy(logits.scatter(1, hidden[:, None], -1e9), labels)

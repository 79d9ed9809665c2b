"""FACT: virtual prototypes keep room free for classes to come (Zhou et al. 2022)."""

from dataclasses import dataclass, field
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import orthogonal_frame
from masil.errors import InputError
from masil.methods.class_means import MappedMeans
from masil.methods.method import Published, Queries, Samples, Task, state
from masil.protocol import Protocol
from masil.training import BaseLoss, CosineLoss

VOTERS = 40  # prototypes nearest to an image; the others have no say


@final
@dataclass(eq=False, kw_only=True)
class FactLoss(CosineLoss):
    """ℓ(f, y) + γ (ℓ(f without y, v) + ℓ(f', v') + ℓ(f' without v', y')), f' of mixed rows.

    f are scaled cosines to base classes and to virtual prototypes; v is the virtual prototype nearest to a row, y' the
    base class nearest to a mixed one. For rows as they are the prototypes are fixed, orthogonal to one another; for
    mixed ones they are copies of these, which learn. `weight` is γ. With `middle`, images are mixed in the middle of
    the network, which then runs twice; otherwise, or where there is no network, their activations are.
    """

    name: ClassVar[str] = "fact"
    prototypes: int = 40  # for the classes to come
    weight: float = 0.01
    middle: bool = False
    network: tuple[Backbone, ...] = field(init=False, default=(), repr=False)  # that is trained; no part of the loss
    free: Tensor = field(init=False, repr=False)  # [r d], unit length, fixed
    learnt: nn.Parameter = field(init=False, repr=False)  # [r d], of mixed rows

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_pixels = self.middle  # type: ignore[misc]

    def prepare(self, backbone: Backbone, pixels: Tensor, labels: Tensor, side: int) -> None:
        """Remember the network in whose middle images are mixed."""
        self.network = (backbone,)

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the class vectors; the prototypes begin as the same ones every time."""
        super().build(features, classes, generator)
        free = virtual_prototypes(self.prototypes, features)
        self.register_buffer("free", free, persistent=False)
        self.learnt = nn.Parameter(free.to(generator.device).clone())
        return self

    def forward(
        self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor, pixels: Tensor | None = None
    ) -> Tensor:
        """Give the cross-entropy, and what keeps the prototypes free."""
        loss = super().forward(activations, labels, partners, lam)
        if not self.prototypes:
            return loss
        assert self.vectors is not None
        classes = functional.normalize(self.vectors)
        fixed, learnt = (
            self.scale * torch.cat([classes, functional.normalize(free)]) for free in (self.free, self.learnt)
        )
        extra = reserve(functional.normalize(activations) @ fixed.T, labels, len(classes))
        if bool((apart := labels != labels.roll(1)).any()):
            if pixels is None or not self.network:
                mixed = mix_with_previous(activations)
            else:
                mixed = mixed_in_the_middle(self.network[0], pixels).float()
            extra = extra + reserve_mixed(functional.normalize(mixed[apart]) @ learnt.T, len(classes))
        return loss + self.weight * extra


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
        "The original links each prototype to three classes at random, here every one is open to every class; it keeps "
        "the prototypes that learnt, a checkpoint here those they began as. On a shared backbone, where nothing of the "
        "middle of a network is at hand, a linear map is trained with mixed activations."
    )
    needs_total = True
    on_shared = "a linear map (its idea is the training)"
    published: ClassVar[Published] = {"cifar100": {"balance": 0.001}}

    balance: float = 0.01
    eta: float = 0.1
    scale: float = 16.0
    free: Tensor = state()  # [r d], unit length, for the r classes to come

    def loss(self, protocol: Protocol) -> FactLoss:
        """Give the loss, with as many prototypes as classes are still to come."""
        to_come = protocol.classes - protocol.base_classes
        return FactLoss(scale=self.scale, prototypes=to_come, weight=self.balance, middle=True)

    def fit(self, base: Samples, task: Task) -> None:
        """Train, and keep the prototypes: those that learnt, unless the backbone's base session did not keep them."""
        self.free = virtual_prototypes(task.protocol.classes - task.protocol.base_classes, base.activations.shape[1])
        super().fit(base, task)

    def keep_of(self, loss: BaseLoss) -> None:
        """Keep the prototypes that learnt."""
        assert isinstance(loss, FactLoss)
        self.free = functional.normalize(loss.learnt.detach())

    def scores(self, queries: Queries) -> Tensor:
        """Give probabilities: (1 − η) softmax(cosines to means) + η softmax(cosines by way of prototypes)."""
        z, vectors = self.geometry(queries)
        direct = torch.softmax(self.scale * z @ vectors.T, 1)
        near = z @ self.free.T
        heard = near.topk(min(VOTERS, len(self.free)), 1)
        near = torch.zeros_like(near).scatter(1, heard.indices, heard.values)
        by_way = torch.softmax(near @ (self.free @ vectors.T), 1)
        return (1 - self.eta) * direct + self.eta * by_way


def virtual_prototypes(count: int, features: int) -> Tensor:
    """Give `count` unit vectors [r d], orthogonal if there is room for that, the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    if 0 < count <= features:
        return orthogonal_frame(count, features, generator)
    return functional.normalize(torch.randn(count, features, generator=generator))


def mix_with_previous(rows: Tensor) -> Tensor:
    """Mix each row [n …] of a batch with the one before it.

    The shares are the quantiles of Beta(2, 2), whose distribution function 3x² − 2x³ is inverted by
    x = ½ − sin(asin(1 − 2u)/3): the batch is in random order, so none is drawn.
    """
    n = len(rows)
    u = (torch.arange(n, device=rows.device) + 0.5) / n
    share = (0.5 - torch.sin(torch.asin(1 - 2 * u) / 3)).reshape(n, *[1] * (rows.ndim - 1)).to(rows.dtype)
    return torch.lerp(rows.roll(1, 0), rows, share)


def mixed_in_the_middle(network: Backbone, pixels: Tensor) -> Tensor:
    """Run a network on normalised pixels, each image mixed with the one before it where its second half begins."""
    hook = second_half(network).register_forward_pre_hook(lambda _, inputs: (mix_with_previous(inputs[0]),))
    try:
        activations: Tensor = network(pixels)
    finally:
        hook.remove()
    return activations


def second_half(network: Backbone) -> nn.Module:
    """Give the layer with which the second half of a network begins: the third stage of a ResNet."""
    if stages := getattr(network, "stages", None):
        return network.get_submodule(stages[min(2, len(stages) - 1)])
    blocks = getattr(network, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        raise InputError(
            f"'{network.name}' has neither stages nor blocks between which images could be mixed; use a ResNet or an "
            "EfficientNet."
        )
    return blocks[len(blocks) // 2]


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

"""ALICE: a margin makes base classes compact, virtual classes make the features diverse (Peng et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.errors import InputError
from masil.methods.mapped_means import MappedMeans
from masil.methods.method import Published
from masil.protocol import Protocol
from masil.training import CosineLoss

NARROW, WIDE = 0.4, 0.6  # the share of the first image in one that is fused of two
DRAWS = 39  # the median of 39 uniform numbers has the distribution Beta(20, 20)


@final
@dataclass(eq=False, kw_only=True)
class AliceLoss(CosineLoss):
    """The angular penalty −log softmax_y(s (cos θ_j − m [j = y])) over classes and pairs of classes.

    A share `fused` of the images is blended with another of the batch. Those of two classes become a virtual class of
    their own, one for each pair.
    """

    name: ClassVar[str] = "alice"
    scale: float = 30.0
    margin: float = 0.4
    fused: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fused <= 1:
            raise InputError(f"A share {self.fused} of the images is to be fused, but a share lies in [0, 1].")

    def virtual_classes(self, classes: int) -> int:
        """Count classes and, where images are fused, pairs of classes."""
        return classes + (classes * (classes - 1) // 2 if self.fused else 0)

    def starts(self, means: Tensor) -> Tensor:
        """Begin a pair of classes halfway between their means."""
        if not self.fused:
            return means
        first, second = torch.triu_indices(len(means), len(means), 1, device=means.device)
        return torch.cat([means, (means[first] + means[second]) / 2])

    def views(self, rows: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Fuse images, or activations, of a batch."""
        return fused(rows, labels, self.fused, classes, generator) if self.fused else (rows, labels)


@final
@dataclass(kw_only=True)
class Alice(MappedMeans):
    """Train with a margin and with virtual classes; then the trained classifier is dropped and class means decide.

    A base class is the mean of its `balanced` images nearest to its centre, so that base and novel classes rest on as
    many images.
    """

    name = "alice"
    title = "ALICE"
    citation = "Peng et al., Few-Shot Class-Incremental Learning from an Open-Set Perspective, ECCV 2022"
    differs = (
        "The original sees two views of each image, adds four fused images for each, and has a projection that it "
        "drops again; here half of the images are fused. On a shared backbone a linear map is trained so."
    )
    published: ClassVar[Published] = {"cub200": {"virtual": False}}  # it makes no virtual classes of fine-grained data

    margin: float = 0.4
    scale: float = 30.0
    balanced: int = 5
    virtual: bool = True

    def loss(self, protocol: Protocol) -> AliceLoss:
        """Give the margin loss, half of the images fused."""
        return AliceLoss(scale=self.scale, margin=self.margin, fused=0.5 if self.virtual else 0.0)

    def base_vectors(self, z: Tensor, labels: Tensor) -> Tensor:
        """Average the most central images of each class."""
        return central_means(z, labels, self.balanced)


def fused(
    rows: Tensor, labels: Tensor, share: float, classes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Blend a share of the rows [n …] with another of the batch; those of two classes become the class of the pair.

    The pairs a < b are counted from `classes` on, (0, 1) first, (0, 2) next: ALICE's class augmentation.
    """
    n = len(labels)
    partner = torch.randperm(n, generator=generator).to(labels.device)
    lam = fusion_shares(n, generator).to(rows)
    chosen = (torch.rand(n, generator=generator) < share).to(labels.device) & (labels != labels[partner])
    weight = torch.where(chosen, lam, 1.0).reshape(n, *[1] * (rows.ndim - 1))
    low, high = torch.minimum(labels, labels[partner]), torch.maximum(labels, labels[partner])
    pair = classes + low * (2 * classes - low - 1) // 2 + high - low - 1
    return torch.lerp(rows[partner], rows, weight), torch.where(chosen, pair, labels)


def fusion_shares(n: int, generator: torch.Generator) -> Tensor:
    """Draw ALICE's shares of the first image: Beta(20, 20), ½ in place of what lies outside [.4, .6]."""
    drawn = torch.rand(n, DRAWS, generator=generator).median(1).values
    return torch.where((drawn < NARROW) | (drawn > WIDE), 0.5, drawn)


def central_means(z: Tensor, labels: Tensor, count: int) -> Tensor:
    """Give for every class the mean of the `count` rows with the largest cosine to its mean, [k d]."""
    means = class_means(z, labels)
    cosines = functional.cosine_similarity(z, means[labels])
    of_class = [(labels == label).nonzero()[:, 0] for label in range(len(means))]
    return torch.stack([z[rows[cosines[rows].topk(min(count, len(rows))).indices]].mean(0) for rows in of_class])

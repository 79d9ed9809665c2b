"""CLOSER: classes spread by contrast and drawn closer to one another transfer better to new ones (Oh et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.data import Augmentation, augment
from masil.methods.class_means import ClassMeans
from masil.methods.method import Published
from masil.protocol import Protocol
from masil.training import CosineLoss, Recipe, contrast

VIEW = Augmentation(crop="resized", scale=(0.25, 1.0), flip=0.5)  # of an image that is augmented already


@final
@dataclass(eq=False, kw_only=True)
class CloserLoss(CosineLoss):
    """Cross-entropy of 32 cos + `spread` · contrast between views of an image − `closer` · mean cosine between classes.

    The contrast's positives are the other views of the same image; all that is compared are the features themselves.
    """

    name: ClassVar[str] = "closer"
    scale: float = 32.0
    spread: float = 0.1
    closer: float = 1.0
    count: int = 3  # views of an image

    def __post_init__(self) -> None:
        super().__post_init__()
        self.needs_whole_batch = True  # type: ignore[misc]

    def views(self, rows: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Add further views of the images; the batch is then all first views, all second ones, and so on."""
        others = [augment(rows, VIEW, rows.shape[-1], generator) for _ in range(self.count - 1)]
        return torch.cat([rows, *others]), labels.repeat(self.count)

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the three terms together."""
        loss = super().forward(activations, labels, partners, lam)
        images = torch.eye(len(labels) // self.count, device=labels.device).repeat(self.count, 1)
        if self.spread:
            loss = loss + self.spread * contrast(activations, images, 1 / self.scale)
        return loss - self.closer * between_classes(activations, labels) if self.closer else loss


@final
@dataclass(kw_only=True)
class Closer(ClassMeans):
    """Train so that classes lie close together and images of a class do not; then a class is its mean."""

    name = "closer"
    title = "CLOSER"
    citation = (
        "Oh et al., CLOSER: Towards Better Representation Learning for Few-Shot Class-Incremental Learning, ECCV 2024"
    )
    differs = (
        "The base session has the usual recipe's epochs and augmentation, and further views are crops of augmented "
        "images. On a shared backbone nothing of it is left but D-Cosine."
    )
    on_shared = "D-Cosine"
    published: ClassVar[Published] = {"miniimagenet": {"closer": 0.5}, "cub200": {"spread": 0.01, "closer": 1.5}}

    spread: float = 0.1
    closer: float = 1.0

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train with the two further terms."""
        return usual.trained_by(self.name, CloserLoss(spread=self.spread, closer=self.closer))


def between_classes(activations: Tensor, labels: Tensor) -> Tensor:
    """Give the mean cosine over pairs of images of different classes; 0 where there are none."""
    unit = functional.normalize(activations)
    apart = (labels[:, None] != labels).to(unit)
    return (apart * (unit @ unit.T)).sum() / apart.sum().clamp_min(1)

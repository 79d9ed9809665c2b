"""ALICE: a margin makes base classes compact, virtual classes make the features diverse (Peng et al. 2022)."""

from dataclasses import dataclass, field
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import class_means, drawn_linear
from masil.data import Augmentation, augment
from masil.errors import InputError
from masil.methods.class_means import ClassMeans
from masil.methods.method import Published, Samples, Task
from masil.protocol import Protocol, by_class
from masil.training import CosineLoss, Recipe

NARROW, WIDE = 0.4, 0.6  # the share of the first image in one that is fused of two
VIEW = Augmentation(  # of an image that is augmented already
    crop="resized", scale=(0.2, 1.0), flip=0.5, brightness=0.4, contrast=0.4, saturation=0.4
)
FUSED = 1  # images for each view of an image; the authors' 4 would make a base session five times as long
DRAWS = 39  # the median of 39 uniform numbers has the distribution Beta(20, 20)


@final
@dataclass(eq=False, kw_only=True)
class AliceLoss(CosineLoss):
    """The angular penalty −log softmax_y(s (cos θ_j − m [j = y])) over classes and pairs of classes.

    Of every image `count` views are seen. To each view come `copies` images that are blended with another of the batch;
    or a share `fused` of the views themselves is blended. Blends of two classes are a virtual class of their own, one
    for each pair.
    """

    name: ClassVar[str] = "alice"
    scale: float = 30.0
    margin: float = 0.4
    fused: float = 0.5
    copies: int = 0
    count: int = 1
    width: int = 2048  # of the projector, behind which the class vectors are; it is dropped after the base session
    projector: nn.Sequential = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fused <= 1:
            raise InputError(f"A share {self.fused} of the images is to be fused, but a share lies in [0, 1].")
        if self.count < 1 or self.copies < 0:
            raise InputError(
                f"{self.count} views of an image and {self.copies} fused ones for each were asked for; at least 1 view "
                "must be seen, and fewer than 0 cannot be fused."
            )

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the class vectors and the projector."""
        super().build(self.width, classes, generator)
        self.projector = nn.Sequential(
            drawn_linear(features, self.width, True, generator),
            nn.BatchNorm1d(self.width),
            nn.ReLU(),
            drawn_linear(self.width, self.width, True, generator),
            nn.BatchNorm1d(self.width, affine=False),
        )
        return self

    def embed(self, activations: Tensor) -> Tensor:
        """Run the projector."""
        projected: Tensor = self.projector(activations)
        return projected

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Compare what the projector gives with the class vectors."""
        return super().forward(self.embed(activations), labels, partners, lam)

    def virtual_classes(self, classes: int) -> int:
        """Count classes and, where images are fused, pairs of classes."""
        return classes + (classes * (classes - 1) // 2 if self.fused or self.copies else 0)

    def start_at(self, means: Tensor) -> None:
        """Begin at random: class vectors live behind the projector, where there are no means yet."""

    def views(self, rows: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """See images of a batch several times, and fuse them; activations are fused alone."""
        looks = [rows, *(augment(rows, VIEW, rows.shape[-1], generator) for _ in range(self.count - 1))]
        shares = [self.fused, *[1.0] * self.copies]
        parts = [
            fused(look, labels, share, classes, generator=generator) if share else (look, labels)
            for look in looks
            for share in shares
        ]
        return torch.cat([seen for seen, _ in parts]), torch.cat([virtual for _, virtual in parts])


@final
@dataclass(kw_only=True)
class Alice(ClassMeans):
    """Train with a margin and with virtual classes; then what stood on the backbone is dropped and class means decide.

    A base class is the mean of its `balanced` images nearest to its centre, so that base and novel classes rest on as
    many images. On a shared backbone that is all: nothing is trained.
    """

    name = "alice"
    title = "ALICE"
    citation = "Peng et al., Few-Shot Class-Incremental Learning from an Open-Set Perspective, ECCV 2022"
    differs = (
        "The original adds four fused images for each of two views; here one. The second view "
        "is a crop of the augmented image. Epochs and rates are the usual recipe's. On a shared backbone nothing "
        "is trained: it is D-Cosine with means of five central images."
    )
    published: ClassVar[Published] = {"cub200": {"virtual": False}}  # it makes no virtual classes of fine-grained data

    margin: float = 0.4
    scale: float = 30.0
    balanced: int = 5
    virtual: bool = True

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train with the margin, on two views of each image and what is fused of them."""
        copies = FUSED if self.virtual else 0
        loss = AliceLoss(scale=self.scale, margin=self.margin, fused=0.0, copies=copies, count=2)
        return usual.trained_by(self.name, loss)

    def fit(self, base: Samples, task: Task) -> None:
        """Average the most central images of each class."""
        self.vectors = central_means(base.activations, base.labels, self.balanced)


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
    parts = by_class(labels, len(means))
    return torch.stack([z[rows[cosines[rows].topk(min(count, len(rows))).indices]].mean(0) for rows in parts])

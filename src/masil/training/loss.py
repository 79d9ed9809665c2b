"""What is minimised in a base session. A loss is written once and trains a network (`train`) or a map (`train_map`)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import FRAMES, Projection, cosine_cross_entropy, dot_regression, least_squares_objective
from masil.errors import InputError, lookup, suggest
from masil.registry import Registry

TERMS = {"dot-regression": "½ (⟨ẑ, m_y⟩ − 1)²", "cross-entropy": "of scaled cosines"}
STARTS = {"random": "drawn from the seed", "means": "the class means of the activations before training"}


@dataclass(eq=False, kw_only=True)
class BaseLoss(nn.Module, ABC):
    """The loss of a base session, with the class vectors that it learns or holds fixed.

    Subclasses are dataclasses: their fields are settings, which recipes and checkpoints keep as plain values beside
    `name`. `build` then makes what depends on the network and the number of classes. Class vectors are called `vectors`
    where they are learnt and `frame` where they are fixed; a `projection`, if there is one, stands between activations
    and class vectors. A checkpoint keeps these three, so it can be used without the loss that made them.
    """

    name: ClassVar[str]
    needs_whole_batch: ClassVar[bool] = False  # compares the images of a batch, so one process must hold all of it
    needs_pixels: ClassVar[bool] = False  # `forward` takes the normalised pixels [n c h w] as a fifth argument

    frame: Tensor | None = field(init=False, repr=False)
    vectors: nn.Parameter | None = field(init=False, repr=False)
    projection: Projection | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__init__()

    def to_json(self) -> dict[str, Any]:
        """Give the name and every setting; `make_loss` makes an equal loss of them."""
        return {"name": self.name, **{key: getattr(self, key) for key in self.settings()}}

    @classmethod
    def settings(cls) -> list[str]:
        """Name the settings."""
        return [setting.name for setting in fields(cls) if setting.init]

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Make the parameters for so many features and classes, virtual ones included; by default class vectors."""
        return self.place(torch.randn(classes, features, generator=generator, device=generator.device))

    @abstractmethod
    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the mean loss of activations [n d] that are lam [n] of class `labels` and 1 − lam of `partners`."""

    def prepare(self, backbone: Backbone, pixels: Tensor, labels: Tensor, side: int) -> None:
        """Make what needs the images [n c h w] that are trained on, as a run begins or goes on; by default nothing.

        They are uint8; `side` is the size at which the recipe begins. A resumed run must get what an unbroken one has.
        It is no parameter or buffer: no checkpoint keeps it, and no weight average.
        """

    def virtual_classes(self, classes: int) -> int:
        """Count the classes that are trained: the real ones, and those that `views` makes of them."""
        return classes

    def views(self, rows: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Make virtual classes of a batch of images or activations [n …]; by default none."""
        return rows, labels

    def starts(self, means: Tensor) -> Tensor:
        """Give a first vector for every class that is trained, from the means [k d] of the real ones."""
        return means

    def start_at(self, means: Tensor) -> None:
        """Let class vectors that are learnt among the activations begin at the means [k d] of the real classes."""
        if self.vectors is not None and self.projection is None:
            self.vectors.data.copy_(functional.normalize(self.starts(means)))

    def embed(self, activations: Tensor) -> Tensor:
        """Give what the class vectors are compared with: activations, or embeddings where there is a projection."""
        return activations if self.projection is None else self.projection(activations)

    def class_vectors(self, k: int) -> Tensor:
        """Give the vectors of the first k classes."""
        vectors = self.vectors if self.frame is None else self.frame
        assert vectors is not None
        return vectors.detach()[:k].clone()

    def place(
        self, vectors: Tensor | None = None, frame: Tensor | None = None, projection: Projection | None = None
    ) -> Self:
        """Keep what `build` has made, learnt class vectors at unit length."""
        self.vectors = None if vectors is None else nn.Parameter(functional.normalize(vectors))
        self.projection = projection
        self.register_buffer("frame", frame)
        return self


@dataclass(eq=False, kw_only=True)
class CosineLoss(BaseLoss):
    """Cross-entropy of scaled cosines between activations and learnt class vectors.

    `margin` is by how much the cosine to an image's own class must win; below 0 it may lose. `smoothing` spreads that
    share of a label over all classes. `contrast` is the weight of supervised contrast within the batch, beside it.
    """

    name: ClassVar[str] = "cosine"
    scale: float = 16.0
    margin: float = 0.0
    smoothing: float = 0.0
    start: str = "random"
    contrast: float = 0.0
    temperature: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup("start of the class vectors", self.start, STARTS)
        positive(self, "scale", "temperature")
        at_least(self, 0, "smoothing", "contrast")
        self.needs_whole_batch = self.contrast > 0  # type: ignore[misc]

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the cross-entropy, and contrast where it has a weight."""
        assert self.vectors is not None
        loss = cosine_cross_entropy(
            activations, self.vectors, labels, self.scale, margin=self.margin,
            smoothing=self.smoothing, partner_labels=partners, lam=lam,
        )  # fmt: skip
        if self.contrast:
            shares = soft_labels(labels, partners, lam, len(self.vectors))
            loss = loss + self.contrast * contrast(activations, shares, self.temperature)
        return loss


@final
@dataclass(eq=False, kw_only=True)
class FrameLoss(BaseLoss):
    """A learnt projection is drawn to class vectors in its own space (Eq. loss).

    The vectors are a fixed `frame`, or learnt where it is None; the `term` is dot-regression or the cross-entropy of
    scaled cosines. These are the rows of MASIL's ablation: learnt vectors with cross-entropy, a simplex with
    cross-entropy, a simplex with dot-regression. The frame has room for `reserve` classes, by default those trained.
    """

    name: ClassVar[str] = "frame"
    frame_shape: str | None = "simplex"
    term: str = "dot-regression"
    scale: float = 10.0
    reserve: int | None = None
    embedding: int = 512  # features behind the projection

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "scale")
        lookup("term of a frame's loss", self.term, TERMS)
        if self.frame_shape is not None:
            lookup("frame", self.frame_shape, FRAMES)
        elif self.term == "dot-regression":
            raise InputError("Dot-regression needs class vectors that are fixed: name a frame, or use cross-entropy.")

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Make the frame, then draw the projection."""
        vectors = frame = None
        if self.frame_shape is None:
            vectors = torch.randn(classes, self.embedding, generator=generator, device=generator.device)
        else:
            frame = FRAMES[self.frame_shape](max(classes, self.reserve or 0), self.embedding, generator)
        return self.place(vectors, frame, Projection(features, self.embedding, generator=generator))

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Compare embeddings with class vectors."""
        vectors = self.vectors if self.frame is None else self.frame
        assert vectors is not None
        z = self.embed(activations)
        if self.term == "cross-entropy":
            return cosine_cross_entropy(z, vectors, labels, self.scale, partner_labels=partners, lam=lam)
        return dot_regression(z, vectors[labels], self.scale, partner_vectors=vectors[partners], lam=lam)


@final
@dataclass(eq=False, kw_only=True)
class LeastSquaresLoss(BaseLoss):
    """½ mean ‖W h − y‖² + ½ `decay_vectors` ‖W‖² + ½ `decay_features` mean ‖h‖², W learnt and y one-hot (Eq. obj).

    The paper's λ_H counts for the sum over all N images, so `decay_features` is N λ_H.
    """

    name: ClassVar[str] = "least-squares"
    decay_vectors: float = 5e-4
    decay_features: float = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "decay_vectors", "decay_features")

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give Eq. obj of a batch."""
        assert self.vectors is not None
        targets = soft_labels(labels, partners, lam, len(self.vectors))
        decay = self.decay_features / len(activations)
        return least_squares_objective([self.vectors], activations, targets, self.decay_vectors, decay_features=decay)


# Losses of one's own are added by name, or by other packages through entry points.
LOSSES: Registry[type[BaseLoss]] = Registry(
    "masil.losses", {loss.name: loss for loss in (CosineLoss, FrameLoss, LeastSquaresLoss)}
)


def make_loss(settings: Mapping[str, Any]) -> BaseLoss:
    """Make a loss of its name and settings; what is missing takes its default, and what does not fit is named."""
    values = dict(settings)
    kind = lookup("loss", str(values.pop("name", CosineLoss.name)), LOSSES)
    for key in values:
        if key not in kind.settings():
            raise InputError(f"The loss '{kind.name}' has no setting '{key}'; {suggest(key, kind.settings())}")
    return kind(**values)


def contrast(embeddings: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Give the supervised contrastive loss (Khosla et al. 2020) of a batch, one view of each image.

    With labels [n k] that may be mixed, image j is a positive of image i to the degree S_ij = ⟨label_i, label_j⟩:
    −Σ_{j≠i} S_ij log softmax_{j≠i}(⟨z_i, z_j⟩/τ) / Σ_{j≠i} S_ij, the mean over the i that have positives.
    """
    if len(embeddings) < 2:
        raise InputError("The contrastive loss compares images of a batch, but the batch has only one.")
    unit = functional.normalize(embeddings)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    agreement = (labels @ labels.T).masked_fill(itself, 0.0)
    logits = (unit @ unit.T / temperature).masked_fill(itself, float("-inf"))
    log_probabilities = logits.log_softmax(1).masked_fill(itself, 0.0)
    positives = agreement.sum(1)
    losses = -(agreement * log_probabilities).sum(1) / positives.clamp_min(1e-12)
    return losses.sum() / (positives > 0).sum().clamp_min(1)


def soft_labels(labels: Tensor, partners: Tensor, lam: Tensor, classes: int) -> Tensor:
    """Give labels as rows [n k]: lam for the image's own class, the rest for its partner's."""
    first, second = (functional.one_hot(index, classes).to(lam) for index in (labels, partners))
    return lam[:, None] * first + (1 - lam)[:, None] * second


def positive(settings: Any, *names: str) -> None:
    """Refuse settings that are not above 0."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise InputError(f"`{name}` is {getattr(settings, name)}, but must be positive.")


def at_least(settings: Any, lowest: float, *names: str) -> None:
    """Refuse settings below the lowest value."""
    for name in names:
        if not getattr(settings, name) >= lowest:
            raise InputError(f"`{name}` is {getattr(settings, name)}, but must be at least {lowest}.")

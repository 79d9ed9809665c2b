"""What stands on the backbone during the base session: class vectors, projection and frame, and the loss they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import (
    FRAMES,
    Projection,
    cosine_cross_entropy,
    dot_regression,
    reserve,
    reserve_mixed,
    virtual_prototypes,
)
from masil.errors import InputError
from masil.training.recipe import Objective


@final
class Head(nn.Module):
    """The objective's terms over k classes; only those with a weight have parameters.

    With dot-regression the class vectors are the frame and live among the embeddings, behind the projection; without it
    they are learnt and live among the activations themselves.
    """

    frame: Tensor | None
    prototypes: Tensor | None
    vectors: nn.Parameter | None

    def __init__(self, features: int, classes: int, objective: Objective, generator: torch.Generator) -> None:
        super().__init__()
        self.objective = objective
        self.classes = classes
        self.vectors = None
        self.projection = None
        frame = None
        if objective.dot:
            reserved = max(classes, objective.reserve or 0)
            frame = FRAMES[objective.frame](reserved, objective.embedding, generator)
            self.projection = Projection(features, objective.embedding, generator=generator)
        if objective.cosine or objective.binary:
            drawn = torch.randn(classes, features, generator=generator, device=generator.device)
            self.vectors = nn.Parameter(functional.normalize(drawn))
        kept_free = virtual_prototypes(objective.prototypes, features) if objective.prototypes else None
        self.register_buffer("frame", frame)
        self.register_buffer("prototypes", kept_free, persistent=False)

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the mean loss of activations [n d] that are lam [n] of `labels` and 1 − lam of `partners`."""
        wants = self.objective
        total = activations.new_zeros(())
        if self.vectors is not None and wants.cosine:
            total = total + wants.cosine * cosine_cross_entropy(
                activations, self.vectors, labels, wants.cosine_scale, wants.margin,
                smoothing=wants.smoothing, partner_labels=partners, lam=lam,
            )  # fmt: skip
        if self.vectors is not None and self.prototypes is not None:
            rows = wants.cosine_scale * torch.cat([functional.normalize(self.vectors), self.prototypes])
            total = total + wants.prototype_weight * keep_free(activations, labels, rows, self.classes)
        if self.vectors is not None and wants.binary:
            labelled = soft_labels(labels, partners, lam, self.classes)
            total = total + wants.binary * sigmoids(activations, self.vectors, labelled, wants.cosine_scale)
        if self.frame is not None:
            total = total + wants.dot * dot_regression(
                self.embed(activations), self.frame[labels], wants.dot_scale,
                partner_vectors=self.frame[partners], lam=lam,
            )  # fmt: skip
        if wants.contrast:
            labelled = soft_labels(labels, partners, lam, self.classes)
            total = total + wants.contrast * contrast(self.embed(activations), labelled, wants.temperature)
        return total

    def embed(self, activations: Tensor) -> Tensor:
        """Give what the class vectors are compared with: embeddings, or activations where there is no projection."""
        return activations if self.projection is None else self.projection(activations)

    def class_vectors(self, k: int) -> Tensor:
        """Give the vectors of the first k classes: the frame if there is one, else the learnt ones."""
        vectors = self.vectors if self.frame is None else self.frame
        assert vectors is not None
        return vectors.detach()[:k].clone()

    def start_at(self, means: Tensor) -> None:
        """Let the learnt class vectors, virtual classes included, begin at these [k d]."""
        if self.vectors is not None:
            self.vectors.data.copy_(functional.normalize(means))


@final
class Network(nn.Module):
    """Backbone and head as one module that gives the loss, which is what a distributed wrapper wants to see."""

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        # A function, not a module: compiled or not, the parameters keep one name each.
        self.run: Callable[[Tensor], Tensor] = backbone.forward
        self.cast: torch.dtype | None = None

    def forward(self, x: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the loss of normalised pixels [n c h w]."""
        with torch.autocast(x.device.type, self.cast, enabled=self.cast is not None):
            activations = self.run(x)
        loss: Tensor = self.head(activations.float(), labels, partners, lam)
        return loss


def sigmoids(activations: Tensor, vectors: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Give the sum over classes of the binary cross-entropy of σ(scale (cos − ½)) to labels [n k], iCaRL's loss."""
    logits = scale * (functional.normalize(activations) @ functional.normalize(vectors).T - 0.5)
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").sum(1).mean()


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
    own, other = (functional.one_hot(index, classes).to(lam) for index in (labels, partners))
    return lam[:, None] * own + (1 - lam)[:, None] * other

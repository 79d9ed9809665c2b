"""What stands on the backbone during the base session: class vectors, projection and frame, and the loss they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import Backbone
from masil.collapse import FRAMES, Projection, cosine_cross_entropy, dot_regression
from masil.errors import InputError
from masil.training.recipe import Objective


@final
class Head(nn.Module):
    """The objective's terms over k classes; only those with a weight have parameters.

    With dot-regression the class vectors are the frame and live among the embeddings, behind the projection; without it
    they are learnt and live among the activations themselves.
    """

    frame: Tensor | None
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
        if objective.cosine:
            drawn = torch.randn(classes, features, generator=generator, device=generator.device)
            self.vectors = nn.Parameter(functional.normalize(drawn))
        self.register_buffer("frame", frame)

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the mean loss of activations [n d] that are lam [n] of `labels` and 1 − lam of `partners`."""
        wants = self.objective
        total = activations.new_zeros(())
        if self.vectors is not None:
            total = total + wants.cosine * cosine_cross_entropy(
                activations, self.vectors, labels, wants.cosine_scale,
                smoothing=wants.smoothing, partner_labels=partners, lam=lam,
            )  # fmt: skip
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
        """Let the learnt class vectors begin at class means [k d], virtual classes at those of their class."""
        if self.vectors is not None:
            copies = -(-len(self.vectors) // len(means))
            self.vectors.data.copy_(functional.normalize(means).repeat(copies, 1)[: len(self.vectors)])


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

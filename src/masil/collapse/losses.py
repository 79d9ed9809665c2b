"""What draws embeddings to their class vectors. Both losses take mixed images: two labels and the first one's share."""

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError


def dot_regression(
    z: Tensor,
    target_vectors: Tensor,
    scale: float = 10.0,
    *,
    partner_vectors: Tensor | None = None,
    lam: Tensor | None = None,
) -> Tensor:
    """Give ½ · scale · mean (⟨ẑ, m_y⟩ − 1)², ẑ of unit length, m_y the target of each row (Eq. loss).

    For mixed images each row is λ of its own error and 1 − λ of its error to `partner_vectors`.
    """
    _both_or_neither(partner_vectors, lam)
    _same_shape(z, target_vectors)
    unit = functional.normalize(z)
    errors = _squared_error(unit, target_vectors)
    if partner_vectors is not None and lam is not None:
        _same_shape(z, partner_vectors)
        errors = _mix(errors, _squared_error(unit, partner_vectors), lam)
    return 0.5 * scale * errors.mean()


def cosine_cross_entropy(
    z: Tensor,
    W: Tensor,
    labels: Tensor,
    scale: float = 16.0,
    margin: float = 0.0,
    *,
    smoothing: float = 0.0,
    partner_labels: Tensor | None = None,
    lam: Tensor | None = None,
) -> Tensor:
    """Give the mean of −log softmax_y(scale · (cos(z, w_j) − margin · [j = y])) over rows of z [n d], with W [k d].

    `smoothing` spreads that share of each label evenly over all classes. For mixed images each row is λ of the loss to
    its own label and 1 − λ of the loss to `partner_labels`.
    """
    _both_or_neither(partner_labels, lam)
    if z.ndim != 2 or W.ndim != 2 or z.shape[1] != W.shape[1]:
        raise InputError(f"Embeddings {list(z.shape)} and class vectors {list(W.shape)} differ in their features.")
    cosines = functional.normalize(z) @ functional.normalize(W).T  # [n k]
    losses = _cross_entropy(cosines, labels, scale, margin, smoothing)
    if partner_labels is not None and lam is not None:
        losses = _mix(losses, _cross_entropy(cosines, partner_labels, scale, margin, smoothing), lam)
    return losses.mean()


def _squared_error(unit: Tensor, targets: Tensor) -> Tensor:
    return ((unit * targets).sum(1) - 1).square()


def _cross_entropy(cosines: Tensor, labels: Tensor, scale: float, margin: float, smoothing: float) -> Tensor:
    if margin:
        cosines = cosines - margin * functional.one_hot(labels, cosines.shape[1]).to(cosines.dtype)
    return functional.cross_entropy(scale * cosines, labels, label_smoothing=smoothing, reduction="none")


def _mix(own: Tensor, partner: Tensor, lam: Tensor) -> Tensor:
    return torch.lerp(partner, own, lam.to(own.device, own.dtype))


def _both_or_neither(partner: Tensor | None, lam: Tensor | None) -> None:
    if (partner is None) != (lam is None):
        raise InputError("A mixed batch needs both its partners and λ, but only one of them was given.")


def _same_shape(z: Tensor, targets: Tensor) -> None:
    if z.ndim != 2 or z.shape != targets.shape:
        raise InputError(
            f"Embeddings {list(z.shape)} and their target vectors {list(targets.shape)} must both be [n d]; "
            f"give one target per row, e.g. frame[labels]."
        )

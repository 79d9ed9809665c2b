"""Why this class and not the next: what each concept adds to the difference of two scores, and where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.backbones import Backbone
from masil.concepts import gradient_importance, location_maps
from masil.learner.base import Base, powered
from masil.learner.labels import Label


@final
@dataclass(frozen=True)
class Explanation:
    """One image's classification. Numbers only; drawing is another room's work."""

    label: Label
    runner_up: Label | None  # None where one class is known
    difference: float  # score of the class minus score of the runner-up: the lead
    contributions: Tensor  # [v], each concept's share of the difference
    rest: float  # what no concept explains
    offset: float  # what putting classes of many and of few images on one scale adds; with it all sums to the lead
    coefficients: Tensor  # [v], P of the image
    concepts: tuple[int, ...]  # those that spoke for the class most, strongest first
    heat: Tensor | None  # [len(concepts) h w], where each lies in the framed image; None without pixels


def explain(
    base: Base,
    activations: Tensor,
    own: Tensor,
    other: Tensor | None,
    labels: tuple[Label, Label | None],
    offset: float,
    pixels: Tensor | None,
    backbone: Backbone | None,
    count: int,
) -> Explanation:
    """Split the difference δ = z·(w − w') + `offset` of one image's scores among concepts.

    With x = PQ + e the image's a^p and z = g(x)/‖g(x)‖, concept j is given P_j ∂/∂P_j of g(PQ + e)·(w − w')/‖g(x)‖, the
    length held fixed. Where g is affine, as whitening is, that is exactly the share of P_j Q_j in δ, and the rest is
    what e and the centre add. The offset is known beforehand: the classes' `offsets_`, one taken from the other.
    """
    x = base.door(activations[None])
    with torch.no_grad():
        P = base.bank.coefficients(x)
        leftover = x - P @ base.bank.concepts
        length = base.embedding.transform(x).norm().clamp_min(torch.finfo(x.dtype).tiny)
    apart = own if other is None else own - other

    def score(coefficients: Tensor) -> Tensor:
        scores: Tensor = base.embedding.transform(coefficients @ base.bank.concepts + leftover) @ apart / length
        return scores

    shares = gradient_importance(score, P)[0]
    cosines = float(base.embed(activations[None])[0] @ apart)
    strongest = [j for j in shares.argsort(descending=True)[:count].tolist() if float(shares[j]) > 0]
    heat = None
    if pixels is not None and backbone is not None:
        heat = torch.zeros(0, *pixels.shape[1:])
        if strongest:
            heat = torch.stack([_where(base, backbone, pixels, j) for j in strongest])
    return Explanation(
        *labels, cosines + offset, shares, cosines - float(shares.sum()), offset, P[0], tuple(strongest), heat
    )  # fmt: skip


def _where(base: Base, backbone: Backbone, pixels: Tensor, concept: int) -> Tensor:
    """Give the coefficient of one concept at every place of the image, [h w]."""
    return location_maps(
        backbone, pixels[None], lambda a: base.bank.coefficients(powered(a.cpu(), base.power))[:, concept]
    ).heat[0]

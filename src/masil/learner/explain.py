"""Why this class and not the next: what each concept adds to the difference of two scores, and where it lies.

One pass gives all of it: the image is decoded once, the backbone runs once, and one NNLS finds the coefficients of the
whole image and of every position of the last feature map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones import Backbone
from masil.concepts import gradient_importance
from masil.data import Images
from masil.errors import InputError
from masil.learner.answers import Answer
from masil.learner.core import Base, Scores
from masil.learner.inputs import Label
from masil.learner.rows import ClassRows
from masil.progress import track

BATCH = 8  # images of a gallery
CROP_SHARE = 2 / 7  # of a side that a crop shows; the paper takes 64 of 224 px


@final
@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """One image as the core sees it: a^p of the whole and, where there are pixels, of every position."""

    x: Tensor  # [1 d]
    positions: Tensor | None = None  # [d h' w'], on the last feature map
    pixels: Tensor | None = None  # uint8 [3 h w], framed


@final
@dataclass(frozen=True, eq=False)
class Explanation:
    """One image's classification. Contributions, rest and offset sum to the difference."""

    label: Label
    runner_up: Label | None  # None where one class is known
    difference: float  # score of the class minus score of the runner-up: the lead
    contributions: Tensor  # [v], each concept's share of the difference
    rest: float  # what no concept explains
    offset: float  # what is added so that classes of many and of few images compete fairly
    coefficients: Tensor  # [v], P of the image
    concepts: tuple[int, ...]  # those that spoke for the class most, strongest first
    answer: Answer  # how sure the learner is
    heat: Tensor | None = None  # [len(concepts) h w], where each lies in the framed image; None without pixels
    pixels: Tensor | None = None  # uint8 [3 h w], the framed image; None without pixels

    @property
    def others(self) -> float:
        """What all other concepts add."""
        return float(self.contributions.sum()) - sum(float(self.contributions[j]) for j in self.concepts)

    def against(self, count: int) -> tuple[int, ...]:
        """Give the `count` concepts that spoke for the runner-up most, strongest first."""
        return tuple(j for j in self.contributions.argsort()[:count].tolist() if float(self.contributions[j]) < 0)


@torch.no_grad()
def run_once(base: Base, backbone: Backbone, pixels: Tensor) -> ImageFeatures:
    """Run the backbone once on a framed image uint8 [3 h w]."""
    normalised = backbone.preprocess(pixels[None])
    maps = backbone.maps(normalised)
    pools = type(backbone).forward is Backbone.forward  # otherwise activations are more than the mean of the maps
    activations = functional.adaptive_avg_pool2d(maps, 1).flatten(1) if pools else backbone(normalised)
    return ImageFeatures(base.take_power(activations.cpu()), base.take_power(maps[0].cpu()), pixels)


def explain(
    base: Base, memory: ClassRows, image: ImageFeatures, scores: Scores, *, answer: Answer, count: int
) -> Explanation:  # fmt: skip
    """Split the difference δ = z·(w − w') + offset of one image's scores among concepts.

    With x = PQ + e the image's a^p and z = g(x)/‖g(x)‖, concept j is given P_j ∂/∂P_j of g(PQ + e)·(w − w')/‖g(x)‖, the
    length held fixed. Where g is affine, as whitening is, that is exactly the share of P_j Q_j in δ, and the rest is
    what e and the centre add. The offset is that of the runner-up less the class's own.
    """
    best, *others = scores.values[0].argsort(descending=True).tolist()
    apart, offset = memory.vectors[best], -float(scores.offsets[best])
    if others:
        apart, offset = apart - memory.vectors[others[0]], float(scores.offsets[others[0]]) + offset
    x, positions = image.x, image.positions
    with torch.no_grad():
        rows = x if positions is None else torch.cat([x, positions.flatten(1).T])
        coefficients = base.bank.coefficients(rows)  # [1 + h'·w' v]
        P = coefficients[:1]
        leftover = x - P @ base.bank.concepts
        raw = base.embedding.transform(x)
        length = raw.norm().clamp_min(torch.finfo(x.dtype).tiny)
        cosines = float(functional.normalize(raw)[0] @ apart)

    def score(coefficients: Tensor) -> Tensor:
        scores: Tensor = base.embedding.transform(coefficients @ base.bank.concepts + leftover) @ apart / length
        return scores

    shares = gradient_importance(score, P)[0]
    strongest = [j for j in shares.argsort(descending=True)[:count].tolist() if float(shares[j]) > 0]
    heat = None
    if positions is not None and image.pixels is not None:
        size = image.pixels.shape[1:]
        heat = torch.zeros(0, *size)
        if strongest:
            maps = coefficients[1:, strongest].T.reshape(1, len(strongest), *positions.shape[1:])
            heat = functional.interpolate(maps, size=size, mode="bilinear", align_corners=False)[0]
    return Explanation(
        memory.labels[best], memory.labels[others[0]] if others else None, cosines + offset, shares,
        rest=cosines - float(shares.sum()), offset=offset, coefficients=P[0], concepts=tuple(strongest), answer=answer,
        heat=heat, pixels=image.pixels,
    )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Crop:
    """A square in which a concept is strong."""

    image: str
    box: tuple[int, int, int]  # top, left and side in the framed image
    coefficient: float  # of the concept at the square's centre
    pixels: Tensor  # uint8 [3 side side]


@torch.no_grad()
def nearest_crops(
    base: Base, backbone: Backbone, images: Images, concepts: Sequence[int], *, count: int = 3
) -> tuple[tuple[Crop, ...], ...]:
    """Show what concepts look like: for each, the `count` images in which it is strongest at one place, cut there.

    A model keeps no photo, so somebody has to bring some.
    """
    if not len(images):
        raise InputError("There are no photos to show concepts in.")
    peaks, centres = _peaks(base, backbone, images, concepts)
    crops = []
    for peak, centre in zip(peaks.T, centres.transpose(0, 1), strict=True):
        best = [row for row in peak.argsort(descending=True, stable=True)[:count].tolist() if float(peak[row]) > 0]
        crops.append(tuple(_cut(images.subset([row]), backbone, centre[row], float(peak[row])) for row in best))
    return tuple(crops)


def _peaks(base: Base, backbone: Backbone, images: Images, concepts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Give each image's largest coefficient of each concept [n j] and where it is, as shares of the sides [n j 2]."""
    peaks, centres = [], []
    for start in track(range(0, len(images), BATCH), "Looking for concepts"):
        pixels = images.load(slice(start, start + BATCH), backbone.framing)
        maps = backbone.maps(backbone.preprocess(pixels)).cpu()  # [n d h w]
        n, d, h, w = maps.shape
        x = base.take_power(maps.permute(0, 2, 3, 1).reshape(-1, d))
        peak, position = base.bank.coefficients(x)[:, list(concepts)].reshape(n, h * w, -1).max(1)
        peaks.append(peak)
        centres.append(torch.stack([(position // w + 0.5) / h, (position % w + 0.5) / w], 2))
    return torch.cat(peaks), torch.cat(centres)


def _cut(photo: Images, backbone: Backbone, centre: Tensor, coefficient: float) -> Crop:
    crop = backbone.framing.crop
    side = max(1, round(CROP_SHARE * crop))
    top, left = (min(max(round(float(share) * crop - side / 2), 0), crop - side) for share in centre)
    pixels = photo.load([0], backbone.framing)[0, :, top : top + side, left : left + side]
    return Crop(photo.name(0), (top, left, side), coefficient, pixels)

"""What a concept looks like: where it is strongest in photos that someone hands over, because a model keeps none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from masil.data import Images
from masil.errors import InputError
from masil.learner.base import Base
from masil.progress import track

if TYPE_CHECKING:
    from masil.backbones import Backbone

BATCH = 8
SHARE = 2 / 7  # of a side that a crop shows; the paper takes 64 of 224 px


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
    base: Base, backbone: Backbone, images: Images, concepts: Sequence[int], count: int = 3
) -> tuple[tuple[Crop, ...], ...]:
    """Give for each concept the `count` images in which it is strongest at one place, cut around that place."""
    if not len(images):
        raise InputError("There are no photos to show concepts in.")
    peaks, places = _peaks(base, backbone, images, concepts)
    found = []
    for peak, place in zip(peaks.T, places.transpose(0, 1), strict=True):
        best = peak.argsort(descending=True, stable=True)[:count].tolist()
        found.append(
            tuple(_cut(images, row, backbone, place[row], float(peak[row])) for row in best if float(peak[row]) > 0)
        )
    return tuple(found)


def _peaks(base: Base, backbone: Backbone, images: Images, concepts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Give each image's largest coefficient of each concept [n j] and where it is, as shares of the sides [n j 2]."""
    peaks, places = [], []
    for start in track(range(0, len(images), BATCH), "Looking for concepts"):
        pixels = images.load(slice(start, start + BATCH), backbone.framing)
        maps = backbone.maps(backbone.preprocess(pixels)).cpu()  # [n d h w]
        n, d, h, w = maps.shape
        coefficients = base.bank.coefficients(base.door(maps.permute(0, 2, 3, 1).reshape(-1, d)))[:, list(concepts)]
        peak, at = coefficients.reshape(n, h * w, -1).max(1)
        peaks.append(peak)
        places.append(torch.stack([(at // w + 0.5) / h, (at % w + 0.5) / w], 2))
    return torch.cat(peaks), torch.cat(places)


def _cut(images: Images, row: int, backbone: Backbone, place: Tensor, coefficient: float) -> Crop:
    crop = backbone.framing.crop
    side = max(1, round(SHARE * crop))
    top, left = (min(max(round(float(share) * crop - side / 2), 0), crop - side) for share in place)
    pixels = images.load([row], backbone.framing)[0, :, top : top + side, left : left + side]
    return Crop(images.name(row), (top, left, side), coefficient, pixels)

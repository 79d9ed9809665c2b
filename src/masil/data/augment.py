"""How training images are varied: a plain value that a recipe saves, the function that does it, and two images in one.

What changes colours is here, what moves pixels in `geometry`. Each image of a batch has its own parameters.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from masil.data.geometry import check_images, flip, pad_crop, random_resized_crop, resize, rotate, uniform, whole
from masil.errors import InputError, lookup

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R BT.601)
CROPS = {"pad": "reflect-pad and crop", "resized": "random resized crop"}


@final
@dataclass(frozen=True)
class Augmentation:
    """What `augment` does to training images. As it stands, nothing; every field is a plain value that JSON keeps."""

    crop: str | None = None  # "pad", "resized" or None
    pad: int = 4  # px of the images as given, for crop="pad"
    scale: tuple[float, float] = (0.6, 1.0)  # share of the area, for crop="resized"
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width : height, for crop="resized"
    flip: float = 0.0  # probability of a mirror image
    rotation: float = 0.0  # largest angle in degrees
    brightness: float = 0.0  # factor in [1 − value, 1 + value]
    contrast: float = 0.0
    saturation: float = 0.0
    cutout: float = 0.0  # side of the square as a fraction of the image's
    cutout_probability: float = 0.5

    def __post_init__(self) -> None:
        if self.crop is not None:
            lookup("crop", self.crop, CROPS)
        if self.pad < 0:
            raise InputError(f"An augmentation pads by {self.pad} px, but padding cannot be negative.")
        # JSON gives lists back; a saved augmentation must equal the one that was saved.
        object.__setattr__(self, "scale", tuple(self.scale))
        object.__setattr__(self, "ratio", tuple(self.ratio))
        if len(self.scale) != 2 or not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise InputError(f"A crop's share of the area is in {self.scale}, but needs 0 < lowest <= highest <= 1.")
        if len(self.ratio) != 2 or not 0 < self.ratio[0] <= self.ratio[1] < math.inf:
            raise InputError(f"A crop's width : height is in {self.ratio}, but needs 0 < lowest <= highest.")
        if not 0 <= self.rotation <= 180:
            raise InputError(f"The largest rotation is {self.rotation} degrees, but must lie in [0, 180].")
        for name in ("brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) < math.inf:
                value = getattr(self, name)
                raise InputError(f"The jitter of {name} is {value}, but must be a number of at least 0.")
        shares = {
            "The probability of a flip": self.flip,
            "The side of a cutout, as a fraction of the image's,": self.cutout,
            "The probability of a cutout": self.cutout_probability,
        }
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise InputError(f"{name} is {value}, but must lie in [0, 1].")


def augment(x: Tensor, augmentation: Augmentation, size: int, generator: torch.Generator) -> Tensor:
    """Vary a batch of uint8 or [0, 1] images and give float [n c size size] in [0, 1].

    In this order: crop (in pixels of the images as given, so that a crop means the same at every resolution), resize
    to `size`, flip, rotation, brightness, contrast, saturation, cutout.
    """
    check_images(x, (torch.uint8,))
    if x.dtype == torch.uint8:
        x = x.float().div_(255)
    if augmentation.crop == "resized":
        x = random_resized_crop(x, size, augmentation.scale, augmentation.ratio, generator=generator)
    elif augmentation.crop == "pad":
        x = pad_crop(x, augmentation.pad, generator)
    x = resize(x, size)
    if augmentation.flip:
        x = flip(x, generator, augmentation.flip)
    x = rotate(x, augmentation.rotation, generator)
    x = jitter(x, (augmentation.brightness, augmentation.contrast, augmentation.saturation), generator)
    return cutout(x, augmentation.cutout, augmentation.cutout_probability, generator)


def jitter(x: Tensor, strengths: tuple[float, float, float], generator: torch.Generator) -> Tensor:
    """Scale brightness, contrast and saturation, each by a factor in [1 − strength, 1 + strength] (not below 0)."""
    return recolour(x, *(draw_factors(len(x), strength, generator) for strength in strengths))


def draw_factors(n: int, strength: float, generator: torch.Generator) -> Tensor | None:
    """Draw [n] factors in [1 − strength, 1 + strength], none below 0; nothing at all for strength 0."""
    return uniform((n,), max(0.0, 1 - strength), 1 + strength, generator) if strength else None


def recolour(x: Tensor, brightness: Tensor | None, contrast: Tensor | None, saturation: Tensor | None) -> Tensor:
    """Blend each image with black, then with its mean grey, then with its own grey; clip to [0, 1] after each.

    A factor f makes anchor + f · (x − anchor): 0 leaves the anchor, 1 the image, more exaggerates.
    """
    if brightness is not None:
        x = _blend(x, None, brightness)
    if contrast is not None:
        x = _blend(x, grey(x).mean((1, 2, 3), keepdim=True), contrast)
    if saturation is not None:
        x = _blend(x, grey(x), saturation)
    return x


def _blend(x: Tensor, anchor: Tensor | None, factors: Tensor) -> Tensor:
    factors = factors.to(x.device, x.dtype)[:, None, None, None]
    blended = x * factors if anchor is None else torch.lerp(anchor, x, factors)
    return blended.clamp_(0, 1)


def grey(x: Tensor) -> Tensor:
    """Give the brightness of each pixel, [n 1 h w]."""
    if x.shape[1] == 1:
        return x
    if x.shape[1] != 3:
        raise InputError(f"Colour jitter needs images of 1 or 3 channels, but these have {x.shape[1]}.")
    red, green, blue = x.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def cutout(x: Tensor, side_fraction: float, probability: float, generator: torch.Generator) -> Tensor:
    """Hide a square of `side_fraction` of the shorter side, with the given probability, under the image's mean colour.

    The square's centre may be any pixel, so near the border part of the square is lost.
    """
    side = round(side_fraction * min(x.shape[2:]))
    if not side or not probability:
        return x
    chosen = uniform((len(x),), 0, 1, generator) < probability
    corners = draw_centres(len(x), (x.shape[2], x.shape[3]), generator) - side // 2
    boxes = torch.cat([corners, torch.full_like(corners, side) * chosen.to(corners.device)[:, None]], 1)
    return torch.where(box_mask(boxes.to(x.device), x), x.mean((2, 3), keepdim=True), x)


def draw_centres(n: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Draw [n 2] pixels (row, column), every pixel as likely as any other."""
    return whole(torch.tensor(shape).expand(n, 2), generator)


def box_mask(boxes: Tensor, x: Tensor) -> Tensor:
    """Say which pixels lie in the box (top, left, height, width) of their image, bool [n 1 h w]."""
    top, left, height, width = boxes[:, :, None].unbind(1)
    rows, columns = (torch.arange(length, device=x.device) for length in x.shape[2:])
    down = (rows >= top) & (rows < top + height)  # [n h]
    across = (columns >= left) & (columns < left + width)  # [n w]
    return (down[:, :, None] & across[:, None, :])[:, None]


class Mixed(NamedTuple):
    """Mixed images: image i is lam[i] of itself and 1 − lam[i] of image partner[i], and so is its label."""

    images: Tensor  # [n c h w]
    partner: Tensor  # int64 [n]
    lam: Tensor  # float32 [n], in [0, 1]


def mixup(x: Tensor, alpha: float, generator: torch.Generator) -> Mixed:
    """Blend each image with a partner, λ x + (1 − λ) x', λ ~ Beta(α, α) for each image."""
    check_images(x)
    lam, partner = draw_partners(len(x), alpha, generator)
    lam, partner = lam.to(x.device), partner.to(x.device)
    return Mixed(torch.lerp(x[partner], x, lam.to(x.dtype)[:, None, None, None]), partner, lam)


def cutmix(x: Tensor, alpha: float, generator: torch.Generator) -> Mixed:
    """Paste a box of a partner into each image; λ is the share of the image that is really left.

    The box has a share 1 − λ of the area, λ ~ Beta(α, α), and any pixel as its centre. What lies outside the image is
    cut off, so λ is computed again from the box that remains.
    """
    check_images(x)
    h, w = x.shape[2:]
    lam, partner = draw_partners(len(x), alpha, generator)
    boxes = clip_boxes(draw_centres(len(x), (h, w), generator), lam, (h, w))
    lam, partner, boxes = 1 - boxes[:, 2:].prod(1) / (h * w), partner.to(x.device), boxes.to(x.device)
    return Mixed(torch.where(box_mask(boxes, x), x[partner], x), partner, lam.to(x.device))


def draw_partners(n: int, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw λ ~ Beta(α, α) [n] by inverting its distribution function, and a permutation of partners [n]."""
    from scipy.special import betaincinv  # here, because to read images takes none of it

    if not 0 < alpha < float("inf"):
        raise InputError(f"Mixing needs a Beta(α, α) distribution with α > 0, but α is {alpha}.")
    share = uniform((n,), 0, 1, generator)
    lam = torch.as_tensor(betaincinv(alpha, alpha, share.double().cpu().numpy()), dtype=torch.float32)
    partner = torch.randperm(n, generator=generator, device=generator.device)
    return lam.clamp(0, 1).to(generator.device), partner


def clip_boxes(centres: Tensor, lam: Tensor, shape: tuple[int, int]) -> Tensor:
    """Give [n 4] boxes (top, left, height, width) of a share 1 − λ of the area about `centres`, cut at the border."""
    limits = torch.tensor(shape, device=centres.device)
    sides = ((1 - lam).sqrt()[:, None] * limits).long()  # [n 2]
    start = (centres - sides // 2).clamp_min(0)
    end = torch.minimum(centres - sides // 2 + sides, limits)
    return torch.cat([start, end - start], 1)

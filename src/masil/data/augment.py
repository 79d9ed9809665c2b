"""How training images are varied: a plain value that a recipe saves, and the function that does it."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.data.colour import check_strength, cutout, jitter
from masil.data.draws import check_images, check_probability
from masil.data.geometry import check_ratio, check_scale, flip, pad_crop, random_resized_crop, resize, rotate
from masil.errors import InputError, lookup

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
        check_scale(self.scale)
        check_ratio(self.ratio)
        check_probability("The probability of a flip", self.flip)
        if not 0 <= self.rotation <= 180:
            raise InputError(f"The largest rotation is {self.rotation} degrees, but must lie in [0, 180].")
        for name in ("brightness", "contrast", "saturation"):
            check_strength(name, getattr(self, name))
        check_probability("The side of a cutout, as a fraction of the image's,", self.cutout)
        check_probability("The probability of a cutout", self.cutout_probability)


def augment(x: Tensor, augmentation: Augmentation, size: int, generator: torch.Generator) -> Tensor:
    """Vary a batch of uint8 or [0, 1] images and give float [n c size size] in [0, 1].

    In this order: crop (in pixels of the images as given, so that a crop means the same at every resolution), resize
    to `size`, flip, rotation, brightness, contrast, saturation, cutout.
    """
    check_images(x, (torch.uint8,))
    if x.dtype == torch.uint8:
        x = x.float().div_(255)
    if augmentation.crop == "resized":
        x = random_resized_crop(x, size, augmentation.scale, augmentation.ratio, generator)
    elif augmentation.crop == "pad":
        x = pad_crop(x, augmentation.pad, generator)
    x = resize(x, size)
    if augmentation.flip:
        x = flip(x, generator, augmentation.flip)
    x = rotate(x, augmentation.rotation, generator)
    x = jitter(x, augmentation.brightness, augmentation.contrast, augmentation.saturation, generator)
    return cutout(x, augmentation.cutout, augmentation.cutout_probability, generator)

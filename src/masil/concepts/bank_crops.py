"""The crops τ(x) of images as images in their own right, so that whatever extracts activations works on them too."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.data import Framing, Images
from masil.errors import InputError


@final
class Crops(Images):
    """Squares of images: row i is the square `boxes[i]` of image `sources[i]`, enlarged to the framing's size."""

    def __init__(self, images: Images, framing: Framing, sources: Tensor, boxes: Tensor, labels: Tensor) -> None:
        self.images = images
        self.framing = framing
        self.sources = sources  # int64 [n]
        self.boxes = boxes  # int64 [n 4]: top, left, bottom, right, in framed pixels
        self.labels = labels

    def load(self, index: Tensor | Sequence[int] | slice, framing: Framing) -> Tensor:
        """Decode each image once, cut its squares, and enlarge them bilinearly."""
        if framing != self.framing:
            raise InputError(f"These crops were drawn in images of {self.framing}, and cannot be loaded in {framing}.")
        which, position = torch.unique(self.sources[index], return_inverse=True)
        pixels = self.images.load(which, framing)
        places = zip(position.tolist(), self.boxes[index].tolist(), strict=True)
        squares = [pixels[at, :, top:bottom, left:right] for at, (top, left, bottom, right) in places]
        if not squares:
            return torch.empty(0, 3, framing.crop, framing.crop, dtype=torch.uint8)
        size = (framing.crop, framing.crop)
        return functional.interpolate(torch.stack(squares), size=size, mode="bilinear", antialias=True)

    def subset(self, index: Tensor | Sequence[int] | slice) -> Self:
        """Give a view of the same images."""
        return type(self)(self.images, self.framing, self.sources[index], self.boxes[index], self.labels[index])

    def relabel(self, labels: Tensor) -> Self:
        """Give the same crops with other labels."""
        return type(self)(self.images, self.framing, self.sources, self.boxes, labels)

    def fingerprint(self) -> str:
        """Hash the images' fingerprint with the places of the crops."""
        state = hashlib.sha256(f"{self.images.fingerprint()} {self.framing}".encode())
        state.update(torch.cat([self.sources[:, None], self.boxes], 1).numpy().tobytes())
        return state.hexdigest()

    def name(self, position: int) -> str:
        """Name the image and the place."""
        top, left, bottom, right = self.boxes[position].tolist()
        return f"{self.images.name(int(self.sources[position]))} [{top}:{bottom}, {left}:{right}]"


def random_crops(images: Images, framing: Framing, k: int, side: int, seed: int) -> Crops:
    """Draw k squares of `side` px in each image, every place as likely as any other; crop j of image i is row i·k + j.

    The side is in framed pixels: the paper takes k = 10, and a side of 18 where images are framed to 32 px (CIFAR-100),
    64 where they are framed to 224 px (CUB-200).
    """
    if k < 1:
        raise InputError(f"{k} crops of each image were asked for; at least 1 is needed.")
    if not 1 <= side <= framing.crop:
        raise InputError(
            f"Crops of {side} px do not fit into images framed to {framing.crop} px; the side is in framed pixels."
        )
    generator = torch.Generator().manual_seed(seed)
    corners = torch.randint(framing.crop - side + 1, (len(images) * k, 2), generator=generator)
    return Crops(
        images,
        framing,
        torch.arange(len(images)).repeat_interleave(k),
        torch.cat([corners, corners + side], 1),
        images.labels.repeat_interleave(k),
    )

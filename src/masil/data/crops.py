"""The crop function τ: small squares of images, from which the concept bank learns parts instead of wholes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from masil.data.geometry import check_images, whole
from masil.data.images import Faults, Framing, Images, Rows
from masil.errors import InputError


def random_crops(images: Images, framing: Framing, k: int, side: int, seed: int) -> Images:
    """Give k random squares of each image as images in their own right, with the labels of their images."""
    labels = images.labels.repeat_interleave(k) if images.labelled and k > 0 else None
    return Images(CropSource.random(images, framing, k, side, seed=seed), labels=labels)


@final
class CropSource:
    """Squares of images: row i is the square `boxes[i]` of image `positions[i]`, enlarged to the framing's size."""

    def __init__(self, images: Images, framing: Framing, positions: Tensor, boxes: Tensor) -> None:
        self.images = images
        self.framing = framing
        self.positions = positions  # int64 [n]
        self.boxes = boxes  # int64 [n 4]: top, left, bottom, right, in framed pixels

    @classmethod
    def random(cls, images: Images, framing: Framing, k: int, side: int, seed: int) -> Self:
        """Draw k squares of `side` px in each image, τ, every place as likely as any other.

        Crop j of image i is row i·k + j. The side is in framed pixels: the paper takes k = 10, and a side of 18 where
        images are framed to 32 px (CIFAR-100), 64 where they are framed to 224 px (CUB-200).
        """
        if k < 1:
            raise InputError(f"{k} crops of each image were asked for; at least 1 is needed.")
        if not 1 <= side <= framing.crop:
            raise InputError(
                f"Crops of {side} px do not fit into images framed to {framing.crop} px; the side is in framed pixels."
            )
        last = framing.crop - side
        corners = _corners(len(images) * k, last, last, torch.Generator().manual_seed(seed))
        return cls(
            images, framing, torch.arange(len(images)).repeat_interleave(k), torch.cat([corners, corners + side], 1)
        )

    def __len__(self) -> int:
        return len(self.positions)

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Decode each image once, cut its squares, and enlarge them."""
        if framing != self.framing:
            raise InputError(f"These crops were drawn in images of {self.framing}, and cannot be loaded in {framing}.")
        which, owner = np.unique(self.positions.numpy()[rows], return_inverse=True)
        pixels, faults = self.images.load_checked(torch.from_numpy(which), framing)
        squares = _cut(pixels, zip(owner.tolist(), self.boxes.numpy()[rows].tolist(), strict=True), framing.crop)
        return squares, {row: faults[image] for row, image in enumerate(owner.tolist()) if image in faults}

    def name(self, row: int) -> str:
        """Name the image and the place."""
        top, left, bottom, right = self.boxes[row].tolist()
        return f"{self.images.name(int(self.positions[row]))} [{top}:{bottom}, {left}:{right}]"

    def fingerprint(self, rows: Rows) -> str:
        """Hash the images' fingerprint with the places of the crops."""
        state = hashlib.sha256(f"{self.images.fingerprint()} {self.framing}".encode())
        state.update(torch.cat([self.positions[:, None], self.boxes], 1).numpy()[rows].tobytes())
        return state.hexdigest()


def crops(images: Tensor, k: int, side: int, size: int, generator: torch.Generator) -> Tensor:
    """Cut k random squares of `side` px from each image and resize them to `size`: [n c h w] → [n·k c size size].

    The same τ as that of `CropSource`, for pixels that are loaded already. uint8 images give uint8 crops.
    """
    n, h, w = len(check_images(images, (torch.uint8,))), *images.shape[2:]
    if k < 1:
        raise InputError(f"τ was asked for {k} crops of each image; it needs at least 1.")
    if not 1 <= side <= min(h, w):
        raise InputError(f"Crops of {side} px do not fit into images of {h} × {w} px; the side is in input pixels.")
    if size < 1:
        raise InputError(f"Crops cannot be resized to {size} px; the size must be at least 1.")
    corners = _corners(n * k, h - side, w - side, generator)
    boxes = torch.cat([corners, corners + side], 1).tolist()
    return _cut(images, ((row // k, box) for row, box in enumerate(boxes)), size)


def _corners(n: int, last_row: int, last_column: int, generator: torch.Generator) -> Tensor:
    """Draw [n 2] corners (top, left)."""
    return whole(torch.tensor([last_row + 1, last_column + 1]).expand(n, 2), generator)


def _cut(images: Tensor, boxes: Iterable[tuple[int, list[int]]], size: int) -> Tensor:
    """Cut each box (image, (top, left, bottom, right)) and resize it bilinearly to `size`; all are equally large."""
    squares = [images[image, :, top:bottom, left:right] for image, (top, left, bottom, right) in boxes]
    if not squares:
        return images.new_empty((0, images.shape[1], size, size))
    stacked = torch.stack(squares)
    if stacked.shape[2] == size:
        return stacked
    if images.is_floating_point():
        return functional.interpolate(stacked, size=(size, size), mode="bilinear", antialias=True)
    resized = functional.interpolate(stacked.float(), size=(size, size), mode="bilinear", antialias=True)
    return resized.round_().clamp_(0, 255).to(images.dtype)

"""The crop function τ: small squares of images, from which the concept bank learns parts instead of wholes.

The paper takes k = 10, and a side of 18 where images are framed to 32 px (CIFAR-100), 64 where they are framed to
224 px (CUB-200).
"""

import hashlib
from typing import final

import numpy as np
import torch
from torch import Tensor

from masil.data.geometry import check_images, resize, whole
from masil.data.images import Faults, Framing, Images, Rows
from masil.errors import InputError


def random_crops(images: Images, framing: Framing, k: int, side: int, seed: int) -> Images:
    """Give k random squares of `side` framed pixels of each image as images in their own right, with its label.

    Crop j of image i is row i·k + j.
    """
    generator = torch.Generator().manual_seed(seed)
    squares = _draw_squares(len(images), k, side, (framing.crop, framing.crop), generator=generator)
    labels = images.labels.repeat_interleave(k) if images.labelled else None
    return Images(CropSource(images, framing, *squares), labels=labels)


def crops(images: Tensor, k: int, side: int, size: int, generator: torch.Generator) -> Tensor:
    """Cut k random squares of `side` px from each image and resize them to `size`: [n c h w] → [n·k c size size].

    The same τ as that of `random_crops`, for pixels that are loaded already. uint8 images give uint8 crops.
    """
    n, _, h, w = check_images(images, (torch.uint8,)).shape
    owners, boxes = _draw_squares(n, k, side, (h, w), generator=generator)
    return _cut(images, owners, boxes, size)


@final
class CropSource:
    """Squares of images: row i is the square `boxes[i]` of image `positions[i]`, enlarged to the framing's size."""

    def __init__(self, images: Images, framing: Framing, positions: Tensor, boxes: Tensor) -> None:
        self.images = images
        self.framing = framing
        self.positions = positions  # int64 [n]
        self.boxes = boxes  # int64 [n 4]: top, left, bottom, right, in framed pixels

    def __len__(self) -> int:
        return len(self.positions)

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Decode each image once, cut its squares, and enlarge them."""
        if framing != self.framing:
            raise InputError(f"These crops were drawn in images of {self.framing}, and cannot be loaded in {framing}.")
        which, owners = np.unique(self.positions.numpy()[rows], return_inverse=True)
        pixels, faults = self.images.load_checked(torch.from_numpy(which), framing)
        squares = _cut(pixels, torch.from_numpy(owners), self.boxes[torch.from_numpy(rows)], framing.crop)
        return squares, {row: faults[image] for row, image in enumerate(owners.tolist()) if image in faults}

    def name(self, row: int) -> str:
        """Name the image and the place."""
        top, left, bottom, right = self.boxes[row].tolist()
        return f"{self.images.name(int(self.positions[row]))} [{top}:{bottom}, {left}:{right}]"

    def fingerprint(self, rows: Rows) -> str:
        """Hash the images' fingerprint with the places of the crops."""
        state = hashlib.sha256(f"{self.images.fingerprint()} {self.framing}".encode())
        state.update(torch.cat([self.positions[:, None], self.boxes], 1).numpy()[rows].tobytes())
        return state.hexdigest()


def _draw_squares(
    n: int, k: int, side: int, shape: tuple[int, int], *, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw k squares (top, left, bottom, right) in each of n images of a shape, every place as likely as any other.

    Gives the image of each square [n·k] and the squares [n·k 4].
    """
    if k < 1:
        raise InputError(f"{k} crops of each image were asked for; at least 1 is needed.")
    if not 1 <= side <= min(shape):
        raise InputError(
            f"Crops of {side} px do not fit into images of {shape[0]} × {shape[1]} px; "
            "the side is in pixels of the framed images."
        )
    corners = whole((torch.tensor(shape) - side + 1).expand(n * k, 2), generator)
    return torch.arange(n).repeat_interleave(k), torch.cat([corners, corners + side], 1)


def _cut(images: Tensor, owners: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut the box of each owner among the images and resize it bilinearly to `size`; all boxes are equally large."""
    squares = [
        images[owner, :, top:bottom, left:right]
        for owner, (top, left, bottom, right) in zip(owners.tolist(), boxes.tolist(), strict=True)
    ]
    if not squares:
        return images.new_empty((0, images.shape[1], size, size))
    stacked = torch.stack(squares)
    if images.is_floating_point():
        return resize(stacked, size)
    return resize(stacked.float(), size).round_().clamp_(0, 255).to(images.dtype)

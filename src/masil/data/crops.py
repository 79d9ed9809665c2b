"""The crop function τ: small squares of an image, from which the concept bank learns parts instead of wholes."""

import torch
from torch import Tensor
from torch.nn import functional

from masil.data.draws import check_images, whole
from masil.errors import InputError


def crops(images: Tensor, k: int, side: int, size: int, generator: torch.Generator) -> Tensor:
    """Cut k random squares of `side` px from each image and resize them to `size`, τ: [n c h w] → [n·k c size size].

    Crop j of image i is row i·k + j. Pixels are those of `images`; the paper takes k = 10 and a side of 18 px for
    CIFAR-100 and miniImageNet, 64 px for CUB-200. uint8 images give uint8 crops.
    """
    return cut(images, crop_corners(images, k, side, generator), side, size)


def crop_corners(images: Tensor, k: int, side: int, generator: torch.Generator) -> Tensor:
    """Draw where the crops of `crops` lie, int64 [n k 2] (top, left), every place as likely as any other."""
    n, h, w = len(check_images(images, (torch.uint8,))), *images.shape[2:]
    if k < 1:
        raise InputError(f"τ was asked for {k} crops of each image; it needs at least 1.")
    if not 1 <= side <= min(h, w):
        raise InputError(f"Crops of {side} px do not fit into images of {h} × {w} px; the side is in input pixels.")
    return whole(torch.tensor([h - side + 1, w - side + 1]).expand(n, k, 2), generator)


def cut(images: Tensor, corners: Tensor, side: int, size: int) -> Tensor:
    """Cut the squares of `side` px at `corners` [n k 2] out of each image and resize them bilinearly to `size`."""
    if size < 1:
        raise InputError(f"Crops cannot be resized to {size} px; the size must be at least 1.")
    n, c, h, w = images.shape
    k = corners.shape[1]
    offsets = torch.arange(side, device=images.device)
    rows, columns = (corners.to(images.device)[..., axis, None] + offsets for axis in (0, 1))  # [n k side]
    index = (rows[..., :, None] * w + columns[..., None, :]).reshape(n, 1, -1).expand(-1, c, -1)
    squares = images.reshape(n, c, h * w).gather(2, index).reshape(n, c, k, side, side)
    squares = squares.transpose(1, 2).reshape(n * k, c, side, side)
    if side == size:
        return squares
    if images.is_floating_point():
        return functional.interpolate(squares, size=(size, size), mode="bilinear", antialias=True)
    resized = functional.interpolate(squares.float(), size=(size, size), mode="bilinear", antialias=True)
    return resized.round_().clamp_(0, 255).to(images.dtype)

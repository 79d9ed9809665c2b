"""Where pixels come from: crops, flips, turns and sizes, each image of a batch with its own parameters.

`Augmentation` has checked the settings. Every operation is a draw of parameters (`draw_…`) followed by a pure function
of images and parameters. Random numbers come from a given generator, wherever the images are.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError

ATTEMPTS = 10  # boxes drawn per image before the largest central one is taken


def resize(x: Tensor, size: int) -> Tensor:
    """Resize images to size × size, bilinear and antialiased (for progressive resolution)."""
    _check_size(size)
    if x.shape[2:] == (size, size):
        return x
    return functional.interpolate(x, size=(size, size), mode="bilinear", antialias=True)


def flip(x: Tensor, generator: torch.Generator, probability: float = 0.5) -> Tensor:
    """Mirror each image left to right with the given probability."""
    chosen = uniform((len(x),), 0, 1, generator) < probability
    return torch.where(chosen.to(x.device)[:, None, None, None], x.flip(3), x)


def pad_crop(x: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Move each image by up to `pad` pixels each way, filling by reflection (pad by reflection, then crop)."""
    if not 0 <= pad < min(x.shape[2:]):
        raise InputError(f"Reflection by {pad} px needs 0 <= pad < {min(x.shape[2:])}, the shorter side of the images.")
    return shift(x, draw_shifts(len(x), pad, generator)) if pad else x


def draw_shifts(n: int, pad: int, generator: torch.Generator) -> Tensor:
    """Draw [n 2] moves (down, right), each a whole number in [−pad, pad]."""
    return whole(torch.full((n, 2), 2 * pad + 1), generator) - pad


def shift(x: Tensor, moves: Tensor) -> Tensor:
    """Give out[i, j] = x[i + down, j + right] of each image for its move, positions outside reflected back in."""
    n, c, h, w = x.shape
    moves = moves.to(x.device)
    rows = _reflect(torch.arange(h, device=x.device) + moves[:, :1], h)  # [n h]
    columns = _reflect(torch.arange(w, device=x.device) + moves[:, 1:], w)  # [n w]
    index = (rows[:, :, None] * w + columns[:, None, :]).reshape(n, 1, h * w).expand(-1, c, -1)
    return x.reshape(n, c, h * w).gather(2, index).reshape(n, c, h, w)


def _reflect(index: Tensor, length: int) -> Tensor:
    """Fold −1, −2 … to 1, 2 … and length, length + 1 … to length − 2, length − 3 …"""
    return (length - 1) - ((length - 1) - index.abs()).abs()


def random_resized_crop(
    x: Tensor, size: int, scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Cut a box with a share `scale` of the area and width : height in `ratio`, and resize it to size × size."""
    boxes = draw_boxes(len(x), (x.shape[2], x.shape[3]), scale, ratio, generator=generator)
    return crop_resize(x, boxes, size)


def draw_boxes(
    n: int, shape: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Draw [n 4] boxes (top, left, height, width): the first of ten that fits, else the largest central one."""
    h, w = shape
    area = uniform((n, ATTEMPTS), *scale, generator) * (h * w)
    aspect = uniform((n, ATTEMPTS), math.log(ratio[0]), math.log(ratio[1]), generator).exp()
    heights, widths = (area / aspect).sqrt().round().long(), (area * aspect).sqrt().round().long()
    fits = (heights >= 1) & (heights <= h) & (widths >= 1) & (widths <= w)
    first = fits.int().argmax(1, keepdim=True)
    chosen = torch.cat([heights.gather(1, first), widths.gather(1, first)], 1)  # [n 2]

    largest = chosen.new_tensor([min(h, max(1, round(w / ratio[0]))), min(w, max(1, round(h * ratio[1])))])
    any_fits = fits.any(1, keepdim=True)
    chosen = torch.where(any_fits, chosen, largest)
    room = chosen.new_tensor([h, w]) - chosen
    corners = torch.where(any_fits, whole(room + 1, generator), room // 2)
    return torch.cat([corners, chosen], 1)


def crop_resize(x: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Resize the box (top, left, height, width) of each image to size × size, bilinear and antialiased.

    Resampling is linear and separable, so each image is R x Cᵀ with its own R [size h] and C [size w].
    """
    _check_size(size)
    n, c, h, w = x.shape
    top, left, height, width = boxes.to(x.device).unbind(1)
    across = _resampling(left, width, w, size).to(x.dtype)  # [n size w]
    down = _resampling(top, height, h, size).to(x.dtype)  # [n size h]
    narrow = (x.reshape(n, c * h, w) @ across.mT).reshape(n, c, h, size)
    return down[:, None] @ narrow


def _resampling(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """Give [n size pixels] weights that resample pixels start … start + length of a line to `size`.

    A triangle stands at the centre of each new pixel, one old or one new pixel wide on either side, whichever is
    wider; what falls outside the box is dropped and the rest scaled to sum 1.
    """
    step = length / size  # [n]
    centres = start[:, None] + step[:, None] * (torch.arange(size, device=start.device) + 0.5)  # [n size]
    old = torch.arange(pixels, device=start.device)
    distance = (old + 0.5 - centres[:, :, None]).abs()  # [n size pixels]
    weights = (1 - distance / step.clamp_min(1)[:, None, None]).clamp_min(0)
    inside = (old >= start[:, None]) & (old < (start + length)[:, None])  # [n pixels]
    weights = weights * inside[:, None]
    return weights / weights.sum(2, keepdim=True)


def _check_size(size: int) -> None:
    if size < 1:
        raise InputError(f"Images cannot be resized to {size} px; the size must be at least 1.")


def rotate(x: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    """Turn each image by an angle in [−degrees, degrees] about its centre."""
    return turn(x, uniform((len(x),), -degrees, degrees, generator)) if degrees and len(x) else x


def turn(x: Tensor, degrees: Tensor) -> Tensor:
    """Turn image i counter-clockwise by degrees[i], bilinear; what comes from outside is mirrored at the border."""
    h, w = x.shape[2:]
    angle = degrees.to(x.device, torch.float32).deg2rad()
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # Coordinates run over [−1, 1] on both axes, so the off-diagonal terms carry the aspect ratio.
    matrix = torch.stack([cos, -sin * (h / w), zero, sin * (w / h), cos, zero], 1).reshape(-1, 2, 3)
    grid = functional.affine_grid(matrix, list(x.shape), align_corners=False).to(x.dtype)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Draw float32 numbers in [low, high) on the generator's own device, so that one seed serves every device."""
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def whole(counts: Tensor, generator: torch.Generator) -> Tensor:
    """Draw, for every entry of `counts`, a whole number in [0, count)."""
    share = torch.rand(counts.shape, generator=generator, device=generator.device, dtype=torch.float64)
    return (share * counts.to(generator.device)).long()


def check_images(x: Tensor, dtypes: tuple[torch.dtype, ...] = ()) -> Tensor:
    """Refuse what is not a batch of images [n c h w] in floating point (or one of `dtypes`)."""
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise InputError(f"Images must have the shape [n c h w], but have {list(x.shape)}; is the batch axis missing?")
    if not (x.is_floating_point() or x.dtype in dtypes):
        raise InputError(f"Images must be floating point in [0, 1], but are {x.dtype}; divide uint8 pixels by 255.")
    return x

"""Where pixels come from: crops, flips, turns and sizes, each image of a batch with its own parameters.

Every operation is a draw of parameters (`draw_…`) followed by a pure function of images and parameters.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from masil.data.draws import check_images, check_probability, uniform, whole
from masil.errors import InputError

ATTEMPTS = 10  # boxes drawn per image before the largest central one is taken


def resize(x: Tensor, size: int) -> Tensor:
    """Resize images to size × size, bilinear and antialiased (for progressive resolution)."""
    check_images(x)
    if size < 1:
        raise InputError(f"Images cannot be resized to {size} px; the size must be at least 1.")
    if x.shape[2:] == (size, size):
        return x
    return functional.interpolate(x, size=(size, size), mode="bilinear", antialias=True)


def flip(x: Tensor, generator: torch.Generator, probability: float = 0.5) -> Tensor:
    """Mirror each image left to right with the given probability."""
    check_images(x)
    check_probability("The probability of a flip", probability)
    chosen = uniform((len(x),), 0, 1, generator) < probability
    return torch.where(chosen.to(x.device)[:, None, None, None], x.flip(3), x)


def pad_crop(x: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Move each image by up to `pad` pixels each way, filling by reflection (pad by reflection, then crop)."""
    check_images(x)
    if not 0 <= pad < min(x.shape[2:]):
        raise InputError(f"Reflection by {pad} px needs 0 <= pad < {min(x.shape[2:])}, the shorter side of the images.")
    return shift(x, draw_shifts(len(x), pad, generator)) if pad else x


def draw_shifts(n: int, pad: int, generator: torch.Generator) -> Tensor:
    """Draw [n 2] moves (down, right), each a whole number in [−pad, pad]."""
    return whole(torch.full((n, 2), 2 * pad + 1), generator) - pad


def shift(x: Tensor, moves: Tensor) -> Tensor:
    """Give out[i, j] = x[i + down, j + right] of each image, positions outside reflected back in."""
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
    x: Tensor,
    size: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """Cut a box with a share `scale` of the area and width : height in `ratio`, and resize it to size × size."""
    check_images(x)
    check_scale(scale)
    check_ratio(ratio)
    boxes = draw_boxes(len(x), (x.shape[2], x.shape[3]), scale, ratio, generator)
    return crop_resize(x, boxes, size)


def check_scale(scale: tuple[float, float]) -> None:
    """Refuse a range of areas that is not within (0, 1]."""
    if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
        raise InputError(f"A crop's share of the area is in {tuple(scale)}, but needs 0 < lowest <= highest <= 1.")


def check_ratio(ratio: tuple[float, float]) -> None:
    """Refuse a range of aspect ratios that is not positive."""
    if len(ratio) != 2 or not 0 < ratio[0] <= ratio[1] < math.inf:
        raise InputError(f"A crop's width : height is in {tuple(ratio)}, but needs 0 < lowest <= highest.")


def draw_boxes(
    n: int,
    shape: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
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
    found = fits.any(1, keepdim=True)
    chosen = torch.where(found, chosen, largest)
    room = chosen.new_tensor([h, w]) - chosen
    corners = torch.where(found, whole(room + 1, generator), room // 2)
    return torch.cat([corners, chosen], 1)


def crop_resize(x: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Resize the box (top, left, height, width) of each image to size × size, bilinear and antialiased.

    Resampling is linear and separable, so each image is R x Cᵀ with its own R [size h] and C [size w].
    """
    if size < 1:
        raise InputError(f"Images cannot be resized to {size} px; the size must be at least 1.")
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


def rotate(x: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    """Turn each image by an angle in [−degrees, degrees] about its centre."""
    check_images(x)
    if not 0 <= degrees <= 180:
        raise InputError(f"The largest rotation is {degrees} degrees, but must lie in [0, 180].")
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

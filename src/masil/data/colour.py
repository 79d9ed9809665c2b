"""What pixels look like: brightness, contrast, saturation and squares cut out, each image with its own parameters."""

import torch
from torch import Tensor

from masil.data.draws import check_images, check_probability, uniform, whole
from masil.errors import InputError

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R BT.601)


def jitter(x: Tensor, brightness: float, contrast: float, saturation: float, generator: torch.Generator) -> Tensor:
    """Scale brightness, contrast and saturation, each by its own factor in [1 − value, 1 + value] (not below 0)."""
    check_images(x)
    strengths = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    for name, value in strengths.items():
        check_strength(name, value)
    if not any(strengths.values()):
        return x
    return recolour(x, *(draw_factors(len(x), value, generator) for value in strengths.values()))


def check_strength(name: str, value: float) -> None:
    """Refuse a jitter that is negative or not a number."""
    if not 0 <= value < float("inf"):
        raise InputError(f"The jitter of {name} is {value}, but must be a number of at least 0.")


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
    check_images(x)
    check_probability("The side of a cutout, as a fraction of the image's,", side_fraction)
    check_probability("The probability of a cutout", probability)
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

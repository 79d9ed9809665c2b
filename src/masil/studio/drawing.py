"""Pictures inside an answer: the square that the model saw, and heat maps to lay over it, as data URLs."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

COLOURS = ("#e4572e", "#1f7fbf", "#e0a100", "#8a4fbf", "#1f9d6b", "#d0367c")  # of concepts, strongest first
OPAQUE = 215  # of 255: under the hottest place the photo is still to be seen


def framed_url(pixels: Tensor) -> str:
    """Give uint8 [3 h w] as a PNG."""
    return _url(Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()))


def heat_url(heat: Tensor, colour: str) -> str:
    """Give a heat map [h w] in one colour, clear where there is no heat, with a white line around the hotter half."""
    warm = heat.clamp_min(0).numpy()
    share = warm / max(float(warm.max()), np.finfo(np.float32).tiny)
    pixels = np.empty((*warm.shape, 4), np.uint8)
    pixels[..., :3] = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    pixels[..., 3] = np.rint(share * OPAQUE)
    pixels[_outline(share >= 0.5)] = 255
    return _url(Image.fromarray(pixels))


def _outline(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Give the places inside that have a neighbour outside."""
    around = np.pad(inside, 1, mode="edge")
    deep = around[:-2, 1:-1] & around[2:, 1:-1] & around[1:-1, :-2] & around[1:-1, 2:]
    return inside & ~deep


def _url(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=3)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"

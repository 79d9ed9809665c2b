"""Decoders that give the same pixels as Pillow's in less time, where they are installed (the extra `fast`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np


def decode_rgb(kind: str, content: bytes, height: int, width: int) -> np.ndarray | None:
    """Decode a JPEG or WebP of known size into uint8 [height width 3].

    None means that Pillow should try: there is no such decoder, or it does not like the file.
    """
    decoder = _decoders().get(kind)
    try:
        rgb = decoder(content, height, width) if decoder else None
    except Exception:  # noqa: BLE001  whatever is wrong, Pillow finds it, too, and it becomes a sentence there
        return None
    return rgb if rgb is not None and rgb.shape == (height, width, 3) else None


@cache
def _decoders() -> dict[str, Callable[[bytes, int, int], np.ndarray]]:
    found: dict[str, Callable[[bytes, int, int], np.ndarray]] = {}
    try:
        import simplejpeg

        def jpeg(content: bytes, height: int, width: int) -> np.ndarray:
            # A buffer of the size that was checked: a file that turns out larger is refused, not decoded.
            rgb: np.ndarray = simplejpeg.decode_jpeg(content, buffer=np.empty((height, width, 3), np.uint8))
            return rgb

        found["JPEG"] = jpeg
    except ImportError:
        pass
    try:
        import webp

        def web(content: bytes, height: int, width: int) -> np.ndarray:  # noqa: ARG001
            rgb: np.ndarray = webp.WebPData.from_buffer(content).decode(webp.WebPColorMode.RGB)
            return rgb

        found["WEBP"] = web
    except ImportError:
        pass
    return found

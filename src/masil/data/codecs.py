"""Decoders that give the same pixels as Pillow's in less time, where they are installed (the extra `fast`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

Decoder = Callable[[bytes, int, int], np.ndarray]

HEAD = 30  # bytes that tell the size of a lossy WebP


def lossy_webp_size(head: bytes) -> tuple[int, int] | None:
    """Give width and height of a WebP in the simple lossy format, which can hold one opaque, upright frame only."""
    if head[:4] != b"RIFF" or head[8:16] != b"WEBPVP8 " or head[23:26] != b"\x9d\x01\x2a" or len(head) < HEAD:
        return None
    width, height = (int.from_bytes(head[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    return width, height


def decode_rgb(kind: str, content: bytes, width: int, height: int) -> np.ndarray | None:
    """Decode a JPEG or WebP of known size into uint8 [height width 3].

    None means that Pillow should try: there is no such decoder, or it does not like the file.
    """
    decoder = _decoders().get(kind)
    try:
        rgb = decoder(content, width, height) if decoder else None
    except Exception:  # noqa: BLE001  whatever is wrong, Pillow finds it, too, and it becomes a sentence there
        return None
    return rgb if rgb is not None and rgb.shape == (height, width, 3) else None


@cache
def _decoders() -> dict[str, Decoder]:
    found: dict[str, Decoder] = {}
    try:
        import simplejpeg

        def jpeg(content: bytes, width: int, height: int) -> np.ndarray:
            # A buffer of the size that was checked: a file that turns out larger is refused, not decoded.
            rgb: np.ndarray = simplejpeg.decode_jpeg(content, buffer=np.empty((height, width, 3), np.uint8))
            return rgb

        found["JPEG"] = jpeg
    except ImportError:
        pass
    try:
        from webp import WebPColorMode, WebPData

        def lossy_webp(content: bytes, width: int, height: int) -> np.ndarray:  # noqa: ARG001
            rgb: np.ndarray = WebPData.from_buffer(content).decode(WebPColorMode.RGB)
            return rgb

        found["WEBP"] = lossy_webp
    except ImportError:
        pass
    return found

"""Uploaded files become framed pixels at once; of a file, only its content and a harmless form of its name are used."""

import re
import time
from collections.abc import Sequence

import numpy as np
import torch

from masil.data import Framing, Images, UploadSource, decode_image, frame_image
from masil.studio.request_guard import MEGABYTE, Limits, RefusedError

Upload = tuple[str, bytes]  # the name that the client gives it, and its content


def decode_uploads(uploads: Sequence[Upload], framing: Framing, limits: Limits) -> Images:
    """Decode and frame one after the other, or say which one cannot be used."""
    check(uploads, limits)
    end = time.monotonic() + limits.seconds
    pixels = np.empty((len(uploads), 3, framing.crop, framing.crop), np.uint8)
    names = [upload_name(position, name) for position, (name, _) in enumerate(uploads)]
    for position, (_, content) in enumerate(uploads):
        if time.monotonic() > end:
            raise RefusedError(
                503, f"Decoding took longer than {limits.seconds:g} s after {position} of {len(uploads)} images; "
                "send fewer or smaller ones.",
            )  # fmt: skip
        # By Pillow alone: of all decoders, its own are mended first when a hostile file is found.
        pixels[position] = frame_image(decode_image(content, framing.resize, names[position]), framing)
    return Images(UploadSource(torch.from_numpy(pixels), names, framing))


def without_copies(photos: Images) -> Images:
    """Leave out photos that are the same as an earlier one."""
    return photos.subset(sorted(set(photos.originals())))


def check(uploads: Sequence[Upload], limits: Limits) -> None:
    """Refuse too many images, or too large ones, before any is decoded."""
    if not uploads:
        raise RefusedError(422, "There is no image in the request; send at least one.")
    if len(uploads) > limits.images:
        raise RefusedError(413, f"There are {len(uploads)} images in the request; at most {limits.images} are taken.")
    for position, (name, content) in enumerate(uploads):
        if len(content) > limits.image_bytes:
            size, most = len(content) / MEGABYTE, limits.image_bytes / MEGABYTE
            raise RefusedError(413, f"{upload_name(position, name)} has {size:.1f} MB; at most {most:g} MB are taken.")


def upload_name(position: int, name: str) -> str:
    """Name an upload in a message: its position, and the last part of its name without anything that is not print."""
    last = re.split(r"[/\\]", name)[-1]
    plain = "".join(letter for letter in last if letter.isprintable()).strip()
    plain = plain if len(plain) <= 60 else f"{plain[:59]}…"
    return f"Image {position + 1} ({plain})" if plain else f"Image {position + 1}"

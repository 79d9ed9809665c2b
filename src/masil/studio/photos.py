"""Uploaded files become framed pixels at once; of a file, only its content and a harmless form of its name are used."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from typing import Self, final

import numpy as np
import torch
from torch import Tensor

from masil.data import Framing, Images, decode_image, frame_image
from masil.errors import InputError
from masil.studio.limits import MEGABYTE, Limits
from masil.studio.refusal import RefusedError

Upload = tuple[str, bytes]  # the name that the client gives it, and its content


@final
class Photos(Images):
    """Images in memory that are framed already: a hundred-megapixel photo weighs as little here as a thumbnail."""

    def __init__(self, pixels: Tensor, names: Sequence[str], framing: Framing, labels: Tensor | None = None) -> None:
        self.pixels = pixels  # uint8 [n 3 crop crop]
        self.names = names
        self.framing = framing
        self.labels = torch.zeros(len(pixels), dtype=torch.int64) if labels is None else labels

    @classmethod
    def decode(cls, uploads: Sequence[Upload], framing: Framing, limits: Limits) -> Self:
        """Decode and frame one after the other, or say which one cannot be used."""
        check(uploads, limits)
        end = time.monotonic() + limits.seconds
        pixels = np.empty((len(uploads), 3, framing.crop, framing.crop), np.uint8)
        names = [called(place, name) for place, (name, _) in enumerate(uploads)]
        for place, (_, content) in enumerate(uploads):
            if time.monotonic() > end:
                raise RefusedError(
                    503, f"Decoding took longer than {limits.seconds:g} s after {place} of {len(uploads)} images; "
                    "send fewer or smaller ones.",
                )  # fmt: skip
            # By Pillow alone: of all decoders, its own are mended first when a hostile file is found.
            pixels[place] = frame_image(decode_image(content, framing.resize, names[place]), framing)
        return cls(torch.from_numpy(pixels), names, framing)

    def once(self) -> Self:
        """Leave out photos that are the same as an earlier one."""
        first: dict[bytes, int] = {}
        for row, pixels in enumerate(self.pixels):
            first.setdefault(pixels.numpy().tobytes(), row)
        return self.subset(list(first.values()))

    def load(self, index: Tensor | Sequence[int] | slice, framing: Framing) -> Tensor:
        """Give the pixels, which must be wanted as they were framed."""
        if framing != self.framing:
            raise InputError(f"The images were framed as {self.framing} but are wanted as {framing}.")
        return self.pixels[index]

    def subset(self, index: Tensor | Sequence[int] | slice) -> Self:
        """Give the photos at `index`."""
        rows: list[int] = torch.arange(len(self))[index].tolist()
        return type(self)(self.pixels[rows], [self.names[row] for row in rows], self.framing, self.labels[rows])

    def relabel(self, labels: Tensor) -> Self:
        """Give the same photos with other labels."""
        return type(self)(self.pixels, self.names, self.framing, labels)

    def fingerprint(self) -> str:
        """Hash the pixels."""
        return hashlib.sha256(self.pixels.numpy().tobytes()).hexdigest()

    def name(self, position: int) -> str:
        """Give the name as messages use it."""
        return self.names[position]


def check(uploads: Sequence[Upload], limits: Limits) -> None:
    """Refuse too many images, or too large ones, before any is decoded."""
    if not uploads:
        raise RefusedError(422, "There is no image in the request; send at least one.")
    if len(uploads) > limits.images:
        raise RefusedError(413, f"There are {len(uploads)} images in the request; at most {limits.images} are taken.")
    for place, (name, content) in enumerate(uploads):
        if len(content) > limits.image_bytes:
            size, most = len(content) / MEGABYTE, limits.image_bytes / MEGABYTE
            raise RefusedError(413, f"{called(place, name)} has {size:.1f} MB; at most {most:g} MB are taken.")


def called(place: int, name: str) -> str:
    """Name an upload in a message: its place, and the last part of its name without anything that is not print."""
    last = re.split(r"[/\\]", name)[-1]
    plain = "".join(letter for letter in last if letter.isprintable()).strip()
    plain = plain if len(plain) <= 60 else f"{plain[:59]}…"
    return f"Image {place + 1} ({plain})" if plain else f"Image {place + 1}"

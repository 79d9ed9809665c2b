"""Labelled images that are decoded only when asked for, always as uint8 and always in one shape."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import InputError

Index = Tensor | Sequence[int] | slice


@final
@dataclass(frozen=True)
class Framing:
    """How a picture becomes a square: its shorter side is resized to `resize`, then the central `crop` square cut."""

    resize: int
    crop: int

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise InputError(f"A framing cuts {self.crop} px out of {self.resize} px; it needs 1 <= crop <= resize.")

    def resized(self, h: int, w: int) -> tuple[int, int]:
        """Give the height and width a picture has once its shorter side is `resize`."""
        scale = self.resize / min(h, w)
        return max(self.crop, round(h * scale)), max(self.crop, round(w * scale))


class Images(ABC):
    """A sequence of labelled images. Subsets are views: no pixel is copied until `load`."""

    labels: Tensor  # int64 [n]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def load(self, index: Index, framing: Framing) -> Tensor:
        """Decode the images at `index` into uint8 [n 3 crop crop]; several threads may ask at once."""

    @abstractmethod
    def subset(self, index: Index) -> Self:
        """Give the images at `index`, in that order, without decoding or copying any."""

    @abstractmethod
    def relabel(self, labels: Tensor) -> Self:
        """Give the same images with other labels."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Give a checksum of the images (not of their labels), the key under which their activations are kept."""

    @abstractmethod
    def name(self, position: int) -> str:
        """Say which image is at `position`, for messages and reports."""


@final
class ArrayImages(Images):
    """Images of one size held in memory as uint8 [N 3 h w]; `rows` says which of them these are."""

    def __init__(self, pixels: np.ndarray, labels: Tensor, rows: Tensor | None = None, source: str = "array") -> None:
        if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.dtype != np.uint8:
            raise InputError(f"Images must be uint8 [n 3 h w], but are {pixels.dtype} of shape {pixels.shape}.")
        self.pixels = pixels
        self.rows = torch.arange(len(pixels)) if rows is None else rows
        self.labels = labels.to(torch.int64)
        self.source = source
        if len(self.labels) != len(self.rows):
            raise InputError(f"There are {len(self.rows)} images but {len(self.labels)} labels.")

    def load(self, index: Index, framing: Framing) -> Tensor:
        """Take the rows, and frame them if they are not of the size asked for."""
        chosen = torch.from_numpy(self.pixels[pick(self.rows, index).numpy()])
        if chosen.shape[2:] == (framing.crop, framing.crop) and framing.resize == framing.crop:
            return chosen
        if not len(chosen):
            return chosen.new_empty((0, 3, framing.crop, framing.crop))
        return frame_pixels(chosen, framing)

    def subset(self, index: Index) -> Self:
        """Give a view of the same pixels."""
        return type(self)(self.pixels, pick(self.labels, index), pick(self.rows, index), self.source)

    def relabel(self, labels: Tensor) -> Self:
        """Give the same pixels with other labels."""
        return type(self)(self.pixels, labels, self.rows, self.source)

    def fingerprint(self) -> str:
        """Hash the pixels of these rows."""
        state = hashlib.sha256(str(self.pixels.shape[1:]).encode())
        rows = self.rows.numpy()
        for start in range(0, len(rows), 4096):
            state.update(self.pixels[rows[start : start + 4096]].tobytes())
        return state.hexdigest()

    def name(self, position: int) -> str:
        """Name the array and the row."""
        return f"{self.source}[{int(self.rows[position])}]"


def frame_pixels(pixels: Tensor, framing: Framing) -> Tensor:
    """Resize pictures uint8 [n 3 h w] whole (bilinear, antialiased) and cut the central squares [n 3 crop crop]."""
    h, w = pixels.shape[2:]
    size = framing.resized(h, w)
    if (h, w) != size:
        pixels = functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)
    top, left = (size[0] - framing.crop) // 2, (size[1] - framing.crop) // 2
    square = pixels[:, :, top : top + framing.crop, left : left + framing.crop]
    return torch.from_numpy(np.ascontiguousarray(square.numpy()))  # NumPy turns [n h w 3] in half of torch's time


def pick(values: Tensor, index: Index) -> Tensor:
    """Take the values at an index (positions, a slice or a mask), refusing positions that are not there."""
    if isinstance(index, slice):
        return values[index]
    chosen = torch.as_tensor(index).cpu()
    if chosen.dtype == torch.bool:
        if len(chosen) != len(values):
            raise InputError(f"A mask of {len(chosen)} was given for {len(values)} images.")
        return values[chosen]
    positions = chosen.to(torch.int64).numpy()  # NumPy's comparisons wake no threads
    outside = positions[(positions < 0) | (positions >= len(values))]
    if outside.size:
        raise InputError(f"Image {outside[0]} was asked for, but there are {len(values)}, counted from 0.")
    return values[positions]


@final
@dataclass(frozen=True)
class Dataset:
    """Named classes with training and test images; label i is `classes[i]`.

    `shots` are the field's standard shots where it has agreed on some: for session 1, 2, … the positions in `train`.
    """

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images
    shots: Mapping[int, Tensor] | None = None
    notes: tuple[str, ...] = field(default=())  # what was skipped on loading, as sentences

    def __post_init__(self) -> None:
        for split, images in (("training", self.train), ("test", self.test)):
            if len(images) and not 0 <= int(images.labels.min()) <= int(images.labels.max()) < len(self.classes):
                raise InputError(
                    f"The {split} labels of '{self.name}' run from {int(images.labels.min())} to "
                    f"{int(images.labels.max())}, but it has {len(self.classes)} classes, counted from 0."
                )

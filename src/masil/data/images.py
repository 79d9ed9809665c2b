"""Images that are decoded only when they are asked for, always as uint8 and always in one shape."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from masil.errors import DataError, InputError

Index = Tensor | Sequence[int] | slice
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]  # which images of a source, in this order
Faults = dict[int, DataError]  # position among the images that were loaded → why this one could not be


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


class ImageSource(Protocol):
    """Where images come from: an array, files, pictures in memory. `Images` chooses among its rows 0 … len − 1."""

    def __len__(self) -> int: ...

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Decode these rows into uint8 [n 3 crop crop], and say which cannot be; several threads may ask at once."""

    def name(self, row: int) -> str:
        """Say which image this is, for messages and reports."""

    def fingerprint(self, rows: Rows) -> str:
        """Give a checksum of what these rows hold."""


@final
class Images:
    """A sequence of images: rows of a source, with labels unless nobody knows them yet.

    Subsets are views: no pixel is copied or decoded until `load`.
    """

    def __init__(self, source: ImageSource, rows: Tensor | None = None, labels: Tensor | None = None) -> None:
        self.source = source
        self.rows = torch.arange(len(source)) if rows is None else rows  # int64 [n]
        self._labels = None if labels is None else labels.to(torch.int64)
        if self._labels is not None and len(self._labels) != len(self.rows):
            raise InputError(f"There are {len(self.rows)} images but {len(self._labels)} labels.")

    @classmethod
    def concat(cls, parts: Sequence[Images]) -> Images:
        """Put images of several sources behind one another. They have labels if all of the parts have."""
        labelled = all(part.labelled for part in parts)
        labels = torch.cat([torch.empty(0, dtype=torch.int64), *(part.labels for part in parts)]) if labelled else None
        return cls(_Joined(parts), labels=labels)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The labels, int64 [n]."""
        if self._labels is None:
            raise InputError("These images have no labels; give them some with `relabel`.")
        return self._labels

    @property
    def labelled(self) -> bool:
        """Whether these images have labels."""
        return self._labels is not None

    def load(self, index: Index, framing: Framing) -> Tensor:
        """Decode the images at `index` into uint8 [n 3 crop crop], or raise for the first that cannot be read."""
        pixels, faults = self.load_checked(index, framing)
        if faults:
            raise faults[min(faults)]
        return pixels

    def load_checked(self, index: Index, framing: Framing) -> tuple[Tensor, Faults]:
        """Decode the images at `index`, each once: a bad one is black, and its position has an entry in the faults."""
        return self.source.load(_pick(self.rows, index).numpy(), framing)

    def subset(self, index: Index) -> Images:
        """Give the images at `index`, in that order, without decoding or copying any."""
        labels = None if self._labels is None else _pick(self._labels, index)
        return Images(self.source, _pick(self.rows, index), labels)

    def relabel(self, labels: Tensor | None) -> Images:
        """Give the same images with other labels, or with none."""
        return Images(self.source, self.rows, labels)

    def fingerprint(self) -> str:
        """Give a checksum of the images (not of their labels), the key under which their activations are kept."""
        return self.source.fingerprint(self.rows.numpy())

    def originals(self) -> list[int]:
        """Give for each image the position of the first one that is the same: its own, unless it is a copy."""
        first: dict[str, int] = {}
        contents = (self.source.fingerprint(row) for row in self.rows.numpy()[:, None])
        return [first.setdefault(content, position) for position, content in enumerate(contents)]

    def name(self, position: int) -> str:
        """Say which image is at `position`, for messages and reports."""
        return self.source.name(int(self.rows[position]))


@final
class _Joined:
    """Several images behind one another. Rows are loaded and hashed in runs that lie in one part."""

    def __init__(self, parts: Sequence[Images]) -> None:
        self.parts = tuple(parts)
        self.ends = np.cumsum([len(part) for part in parts], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def _runs(self, rows: Rows) -> Iterator[Images]:
        owners = np.searchsorted(self.ends, rows, side="right")
        for run in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(owners)) + 1):
            if len(run):
                part = self.parts[owners[run[0]]]
                yield part.subset(torch.from_numpy(rows[run] - (self.ends[owners[run[0]]] - len(part))))

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        pixels = torch.empty((len(rows), 3, framing.crop, framing.crop), dtype=torch.uint8)
        faults: Faults = {}
        start = 0
        for run in self._runs(rows):
            pixels[start : start + len(run)], run_faults = run.load_checked(slice(None), framing)
            faults |= {start + position: fault for position, fault in run_faults.items()}
            start += len(run)
        return pixels, faults

    def name(self, row: int) -> str:
        return next(self._runs(np.array([row]))).name(0)

    def fingerprint(self, rows: Rows) -> str:
        return hashlib.sha256("\n".join(run.fingerprint() for run in self._runs(rows)).encode()).hexdigest()


def _pick(values: Tensor, index: Index) -> Tensor:
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


def frame_pixels(pixels: Tensor, framing: Framing) -> Tensor:
    """Resize pictures uint8 [n 3 h w] whole (bilinear, antialiased) and cut the central squares [n 3 crop crop]."""
    h, w = pixels.shape[2:]
    size = framing.resized(h, w)
    if (h, w) != size:
        pixels = functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)
    top, left = (size[0] - framing.crop) // 2, (size[1] - framing.crop) // 2
    square = pixels[:, :, top : top + framing.crop, left : left + framing.crop]
    return torch.from_numpy(np.ascontiguousarray(square.numpy()))  # NumPy turns [n h w 3] in half of torch's time


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

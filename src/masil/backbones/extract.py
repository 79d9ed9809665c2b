"""From images to activations: the next pictures are on their way while the engine works on these."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.backbones.engine import Engine, PendingActivations, open_engine
from masil.data import Framing
from masil.errors import DataError, InputError
from masil.progress import bar, quiet

AHEAD = 2  # batches begun in advance
FEW = 32  # images that are over too soon for a bar
PIXELS, MOST = 64 * 224 * 224, 256  # in one batch pixels, and images, unless a batch size is given


class Pictures(Protocol):
    """What activations are extracted from: `masil.data.Images`, or anything else that loads pixels by position."""

    def __len__(self) -> int: ...

    def load(self, index: slice, framing: Framing, /) -> Tensor:
        """Give uint8 [n 3 crop crop]; several threads may ask at once."""

    def name(self, position: int, /) -> str:
        """Say which image is at `position`."""


def extract(
    backbone: Backbone, images: Pictures, *, framing: Framing | None = None, flip: bool = False,
    batch: int | None = None, engine: str | Engine = "auto", device: str = "auto",
) -> Tensor:  # fmt: skip
    """Give the activations float32 [n d] of `images`, framed as the backbone expects or as `framing` says.

    With `flip`, those of the mirrored images. `engine` is the name of one, or one that is open for this backbone. The
    first image that cannot be read is raised as a DataError.
    """
    framing = framing or backbone.framing
    activations = torch.empty(len(images), backbone.features)
    if len(images):
        runner = engine
        if isinstance(runner, str):
            runner = open_engine(backbone, engine=runner, device=device, size=framing.crop)
        shown = nullcontext() if len(images) > FEW else quiet()
        with shown, bar("Extracting activations", len(images)) as advance:
            for start, rows in stream(runner, images, framing, flip=flip, batch=batch):
                activations[start : start + len(rows)] = rows
                advance(len(rows))
    return activations


@final
@dataclass(frozen=True)
class Extracted:
    """Activations of the images that could be read, in their order, and why the others could not."""

    rows: Tensor  # float32 [m d]
    faults: Mapping[int, str]  # position of an image -> a sentence


def extract_readable(
    backbone: Backbone, images: Pictures, *, engine: str | Engine = "auto", device: str = "auto"
) -> Extracted:
    """Give activations as `extract` does, but leave out images that cannot be read, and say why.

    Every image is read once, but for the few that are loaded together with one that cannot be read.
    """
    readable = _Readable(images)
    rows = extract(backbone, readable, engine=engine, device=device)
    faults = dict(sorted(readable.faults.items()))
    return Extracted(rows[[i for i in range(len(images)) if i not in faults]] if faults else rows, faults)


@final
class _Readable:
    """Images of which those that cannot be read are black, and noted with the reason."""

    def __init__(self, images: Pictures) -> None:
        self.images, self.name = images, images.name
        self.faults: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.images)

    def load(self, index: slice, framing: Framing, /) -> Tensor:
        with suppress(DataError):
            return self.images.load(index, framing)
        pixels = torch.zeros(index.stop - index.start, 3, framing.crop, framing.crop, dtype=torch.uint8)
        for i, position in enumerate(range(index.start, index.stop)):
            try:
                pixels[i] = self.images.load(slice(position, position + 1), framing)[0]
            except DataError as error:
                self.faults[position] = str(error)
        return pixels


def stream(
    engine: Engine, images: Pictures, framing: Framing, *, start: int = 0, flip: bool = False, batch: int | None = None
) -> Iterator[tuple[int, Tensor]]:
    """Yield activations [batch d] from image `start` on, each with the position of its first image, in order."""
    step = min(MOST, max(1, PIXELS // framing.crop**2)) if batch is None else batch
    if step < 1:
        raise InputError(f"A batch must have at least one image, not {batch}.")

    def begin(first: int) -> tuple[int, PendingActivations]:
        def load(part: slice) -> Tensor:
            pixels = images.load(slice(first + part.start, first + part.stop), framing)
            return pixels.flip(3) if flip else pixels

        return first, engine.begin(load, min(step, len(images) - first), loader)

    starts = iter(range(start, len(images), step))
    with ThreadPoolExecutor(1, thread_name_prefix="load") as loader:
        waiting: deque[tuple[int, PendingActivations]] = deque()
        try:
            waiting.extend(map(begin, islice(starts, AHEAD)))
            while waiting:
                first, pending = waiting[0]
                waiting.extend(map(begin, islice(starts, 1)))
                rows = pending.result()
                waiting.popleft()
                refuse_impossible(rows, images, first)
                yield first, rows
        finally:
            for _, pending in waiting:
                pending.cancel()


def refuse_impossible(rows: Tensor, images: Pictures, first: int, rows_per_image: int = 1) -> None:
    """Raise where activations are not finite or not >= 0, naming the first such image."""
    lowest, highest = (edge(rows.numpy(), 1) for edge in (np.min, np.max))  # NumPy wakes no threads beside the engine's
    right = (lowest >= 0) & (highest < np.inf)  # NaN is neither
    if not right.all():
        row = int(np.flatnonzero(~right)[0])
        name = images.name(first + row // rows_per_image)
        raise InputError(
            f"The activations of image '{name}' are not all finite and >= 0, the smallest is {lowest[row]:.3g}; has "
            "training diverged, or does the backbone need non_negative='split'?"
        )

"""From images to activations: the next pictures are on their way while the engine works on these."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import final

import numpy as np
import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.backbones.engine import Engine, PendingActivations, open_engine
from masil.data import Framing, Images
from masil.errors import DataError, InputError
from masil.progress import bar, quiet

AHEAD = 2  # batches begun in advance
FEW = 32  # images that are over too soon for a bar
PIXELS, MOST = 64 * 224 * 224, 256  # in one batch pixels, and images, unless a batch size is given


def extract(
    backbone: Backbone, images: Images, *, framing: Framing | None = None, flip: bool = False,
    batch: int | None = None, engine: str | Engine = "auto", device: str = "auto",
) -> Tensor:  # fmt: skip
    """Give the activations float32 [n d] of `images`, framed as the backbone expects or as `framing` says.

    With `flip`, those of the mirrored images. `engine` is the name of one, or one that is open for this backbone. The
    first image that cannot be read is raised as a DataError.
    """
    framing = framing or backbone.framing
    rows = torch.empty(len(images), backbone.features)
    if len(images):
        runner = _opened(backbone, framing, engine, device)
        _fill(rows, stream(runner, images, framing, flip=flip, batch=batch))
    return rows


@final
@dataclass(frozen=True)
class Extracted:
    """Activations of the images that could be read, in their order, and why the others could not."""

    rows: Tensor  # float32 [m d]
    faults: Mapping[int, str]  # position of an image -> a sentence


def extract_readable(
    backbone: Backbone, images: Images, *, engine: str | Engine = "auto", device: str = "auto"
) -> Extracted:
    """Give activations as `extract` does, but leave out images that cannot be read, and say why.

    Every image is read once, but for the few that are loaded together with one that cannot be read.
    """
    faults: dict[int, str] = {}
    rows = torch.empty(len(images), backbone.features)
    if len(images):
        runner = _opened(backbone, backbone.framing, engine, device)
        _fill(rows, stream(runner, images, backbone.framing, faults=faults))
    readable = [position for position in range(len(images)) if position not in faults]
    return Extracted(rows if not faults else rows[readable], dict(sorted(faults.items())))


def _opened(backbone: Backbone, framing: Framing, engine: str | Engine, device: str) -> Engine:
    if isinstance(engine, Engine):
        return engine
    return open_engine(backbone, engine=engine, device=device, size=framing.crop)


def _fill(rows: Tensor, batches: Iterator[tuple[int, Tensor]]) -> None:
    shown = nullcontext() if len(rows) > FEW else quiet()
    with shown, bar("Extracting activations", len(rows)) as advance:
        for start, some in batches:
            rows[start : start + len(some)] = some
            advance(len(some))


def stream(
    engine: Engine, images: Images, framing: Framing, *, start: int = 0, flip: bool = False,
    batch: int | None = None, faults: dict[int, str] | None = None,
) -> Iterator[tuple[int, Tensor]]:  # fmt: skip
    """Yield activations [batch d] from image `start` on, each with the position of its first image, in order.

    Where `faults` are given, an image that cannot be read is noted there, and its row means nothing.
    """
    step = min(MOST, max(1, PIXELS // framing.crop**2)) if batch is None else batch
    if step < 1:
        raise InputError(f"A batch must have at least one image, not {batch}.")

    def begin(first: int) -> tuple[int, PendingActivations]:
        def load(part: slice) -> Tensor:
            rows = slice(first + part.start, first + part.stop)
            try:
                pixels = images.load(rows, framing)
            except DataError:
                if faults is None:
                    raise
                pixels = _load_readable(images, rows, framing, faults)
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


def _load_readable(images: Images, rows: slice, framing: Framing, faults: dict[int, str]) -> Tensor:
    """Load images one by one; those that cannot be read are black, and noted."""
    pixels = torch.zeros(rows.stop - rows.start, 3, framing.crop, framing.crop, dtype=torch.uint8)
    for i, position in enumerate(range(rows.start, rows.stop)):
        try:
            pixels[i] = images.load(slice(position, position + 1), framing)[0]
        except DataError as error:
            faults[position] = str(error)
    return pixels


def refuse_impossible(rows: Tensor, images: Images, first: int, each: int = 1) -> None:
    """Raise where activations are not finite or not >= 0, naming the first such image; `each` rows are of one image."""
    lowest, highest = (edge(rows.numpy(), 1) for edge in (np.min, np.max))  # NumPy wakes no threads beside the engine's
    right = (lowest >= 0) & (highest < np.inf)  # NaN is neither
    if not right.all():
        row = int(np.flatnonzero(~right)[0])
        raise InputError(
            f"The activations of image '{images.name(first + row // each)}' are not all finite and >= 0, the smallest "
            f"is {lowest[row]:.3g}; has training diverged, or does the backbone need non_negative='split'?"
        )

"""From images to activations: the next pictures are on their way while the engine works on these."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice

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
    if not len(images):
        return torch.empty(0, backbone.features)
    if isinstance(engine, str):
        engine = open_engine(backbone, engine=engine, device=device, size=framing.crop)
    return extract_with(engine, images, framing, flip=flip, batch=batch)


def extract_with(
    engine: Engine, images: Images, framing: Framing, *, flip: bool = False, batch: int | None = None,
    faults: dict[int, DataError] | None = None,
) -> Tensor:  # fmt: skip
    """Give the activations float32 [n d] of one image or more by an engine that is open.

    An image that cannot be read is raised as a DataError. Where `faults` are given, it is put there instead, by its
    position, and its row means nothing; the others are read once, but for the few that were loaded together with it.
    """
    activations = torch.empty(0)
    shown = nullcontext() if len(images) > FEW else quiet()
    with shown, bar("Extracting activations", len(images)) as advance:
        for start, rows in stream(engine, images, framing, flip=flip, batch=batch, faults=faults):
            if start == 0:
                activations = torch.empty(len(images), rows.shape[1])
            activations[start : start + len(rows)] = rows
            advance(len(rows))
    return activations


def stream(
    engine: Engine, images: Images, framing: Framing, *, start: int = 0, flip: bool = False, batch: int | None = None,
    faults: dict[int, DataError] | None = None,
) -> Iterator[tuple[int, Tensor]]:  # fmt: skip
    """Yield activations [batch d] from image `start` on, each with the position of its first image, in order."""
    step = min(MOST, max(1, PIXELS // framing.crop**2)) if batch is None else batch
    if step < 1:
        raise InputError(f"A batch must have at least one image, not {batch}.")

    def begin(first: int) -> tuple[int, PendingActivations]:
        def load(part: slice) -> Tensor:
            positions = range(first + part.start, first + part.stop)
            try:
                pixels = images.load(slice(positions.start, positions.stop), framing)
            except DataError:
                if faults is None:
                    raise
                pixels = _load_checked(images, positions, framing, faults)
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


def _load_checked(images: Images, positions: range, framing: Framing, faults: dict[int, DataError]) -> Tensor:
    """Load images one by one; those that cannot be read are black, and noted."""
    pixels = torch.zeros(len(positions), 3, framing.crop, framing.crop, dtype=torch.uint8)
    for i, position in enumerate(positions):
        try:
            pixels[i] = images.load(slice(position, position + 1), framing)[0]
        except DataError as error:
            faults[position] = error
    return pixels


def refuse_impossible(rows: Tensor, images: Images, first: int, rows_per_image: int = 1) -> None:
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

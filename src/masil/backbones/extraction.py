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
from masil.backbones.engine import Engine, Underway
from masil.backbones.engines import open_engine
from masil.data import Framing, Images
from masil.errors import InputError
from masil.progress import bar, quiet

AHEAD = 2  # batches begun in advance
FEW = 32  # images that are over too soon for a bar
PIXELS, MOST = 64 * 224 * 224, 256  # in one batch pixels, and images, unless a batch size is given


def extract(
    backbone: Backbone,
    images: Images,
    *,
    framing: Framing | None = None,
    flip: bool = False,
    batch: int | None = None,
    engine: str | Engine = "auto",
    device: str = "auto",
) -> Tensor:
    """Give the activations float32 [n d] of `images`, framed as the backbone expects or as `framing` says.

    With `flip`, those of the mirrored images. `engine` is the name of one, or one that is open for this backbone.
    """
    framing = framing or backbone.framing
    out = torch.empty(len(images), backbone.features)
    if len(images):
        runner = engine
        if isinstance(runner, str):
            runner = open_engine(backbone, engine=runner, device=device, size=framing.crop)
        shown = nullcontext() if len(images) > FEW else quiet()
        with shown, bar("Extracting activations", len(images)) as advance:
            for start, rows in stream(runner, images, framing, flip=flip, batch=batch):
                out[start : start + len(rows)] = rows
                advance(len(rows))
    return out


def stream(
    engine: Engine, images: Images, framing: Framing, *, start: int = 0, flip: bool = False, batch: int | None = None
) -> Iterator[tuple[int, Tensor]]:
    """Yield activations [batch d] from image `start` on, each with the position of its first image, in order."""
    step = min(MOST, max(1, PIXELS // framing.crop**2)) if batch is None else batch
    if step < 1:
        raise InputError(f"A batch must have at least one image, not {batch}.")

    def begin(first: int) -> tuple[int, Underway]:
        def load(some: slice) -> Tensor:
            pixels = images.load(slice(first + some.start, first + some.stop), framing)
            return pixels.flip(3) if flip else pixels

        return first, engine.begin(load, min(step, len(images) - first), loader)

    starts = iter(range(start, len(images), step))
    with ThreadPoolExecutor(1, thread_name_prefix="load") as loader:
        waiting: deque[tuple[int, Underway]] = deque()
        try:
            waiting.extend(map(begin, islice(starts, AHEAD)))
            while waiting:
                first, underway = waiting[0]
                waiting.extend(map(begin, islice(starts, 1)))
                rows = underway.result()
                waiting.popleft()
                refuse_impossible(rows, images, first)
                yield first, rows
        finally:
            for _, underway in waiting:
                underway.cancel()


def refuse_impossible(rows: Tensor, images: Images, first: int, each: int = 1) -> None:
    """Raise where activations are not finite or not >= 0, naming the first such image; `each` rows are of one image."""
    lowest, highest = (edge(rows.numpy(), 1) for edge in (np.min, np.max))  # NumPy wakes no threads beside the engine's
    right = (lowest >= 0) & (highest < np.inf)  # NaN is neither
    if not right.all():
        at = int(np.flatnonzero(~right)[0])
        raise InputError(
            f"The activations of image '{images.name(first + at // each)}' are not all finite and >= 0, the smallest "
            f"is {lowest[at]:.3g}; has training diverged, or does the backbone need non_negative='split'?"
        )

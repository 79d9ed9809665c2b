"""From images to activations: the next pictures are on their way while the engine works on these.

Activations averaged over several views of an image, mirrored and moved copies, are steadier than those of one.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones.backbone import Backbone
from masil.backbones.engine import Engine, PendingActivations, open_engine
from masil.data import Framing, Images
from masil.errors import DataError, InputError
from masil.progress import bar, quiet

STEP = 1 / 16  # of the square's side: two pixels of 32, sixteen of 260


@final
@dataclass(frozen=True)
class View:
    """A look at an image: moved by fractions of the square's side, then mirrored or not.

    What comes in at an edge is what the framing cuts away, as far as there is such; beyond the picture itself, the
    picture reflected at its edge.
    """

    right: float = 0.0
    down: float = 0.0
    mirrored: bool = False

    def load(
        self, images: Images, positions: slice, framing: Framing, faults: dict[int, DataError] | None = None
    ) -> Tensor:
        """Decode images as this view shows them, uint8 [n 3 crop crop], each once.

        One that cannot be read is raised, or put into `faults` by its position, where they are given.
        """
        right, down = round(self.right * framing.crop), round(self.down * framing.crop)
        margin = max(abs(right), abs(down))
        cut_away = min(margin, (framing.resize - framing.crop) // 2)
        pixels, bad = images.load_checked(positions, Framing(framing.resize, framing.crop + 2 * cut_away))
        if faults is None and bad:
            raise bad[min(bad)]
        if faults is not None:
            faults.update({positions.start + position: fault for position, fault in bad.items()})
        if margin > cut_away:
            pixels = functional.pad(pixels.float(), [margin - cut_away] * 4, mode="reflect").to(pixels.dtype)
        top, left = margin - down, margin - right
        pixels = pixels[:, :, top : top + framing.crop, left : left + framing.crop]
        return pixels.flip(3) if self.mirrored else pixels


PLAIN, MIRRORED = View(), View(mirrored=True)
_MOVED = {
    1: (PLAIN,),
    3: (PLAIN, View(-STEP, -STEP), View(STEP, STEP)),
    5: (PLAIN, View(-STEP, -STEP), View(STEP, STEP), View(-STEP, STEP), View(STEP, -STEP)),
}
# By their number: one look; with its mirror image; with two or four moved copies, each with its mirror image.
VIEWS: dict[int, tuple[View, ...]] = {1: (PLAIN,)} | {
    2 * number: tuple(view for moved in views for view in (moved, View(moved.right, moved.down, mirrored=True)))
    for number, views in _MOVED.items()
}


def find_views(number: int) -> tuple[View, ...]:
    """Give the views that are averaged where `number` of them are asked for."""
    if number not in VIEWS:
        raise InputError(f"There are sets of {', '.join(map(str, VIEWS))} views, not of {number}.")
    return VIEWS[number]


AHEAD = 2  # batches begun in advance
FEW = 32  # images that are over too soon for a bar
PIXELS, MOST = 64 * 224 * 224, 256  # in one batch pixels, and images, unless a batch size is given


def extract(
    backbone: Backbone, images: Images, *, framing: Framing | None = None, view: View = PLAIN,
    batch: int | None = None, engine: str | Engine = "auto", device: str = "auto",
) -> Tensor:  # fmt: skip
    """Give the activations float32 [n d] of `images`, framed as the backbone expects or as `framing` says.

    `view` mirrors or moves them. `engine` is the name of one, or one that is open for this backbone. The
    first image that cannot be read is raised as a DataError.
    """
    framing = framing or backbone.framing
    if not len(images):
        return torch.empty(0, backbone.features)
    if isinstance(engine, str):
        engine = open_engine(backbone, engine=engine, device=device, size=framing.crop)
    return extract_with(engine, images, framing, view=view, batch=batch)


def extract_with(
    engine: Engine, images: Images, framing: Framing, *, view: View = PLAIN, batch: int | None = None,
    faults: dict[int, DataError] | None = None,
) -> Tensor:  # fmt: skip
    """Give the activations float32 [n d] of one image or more by an engine that is open.

    An image that cannot be read is raised as a DataError. Where `faults` are given, it is put there instead, by its
    position, and its row means nothing; every image is read once.
    """
    activations = torch.empty(0)
    shown = nullcontext() if len(images) > FEW else quiet()
    with shown, bar("Extracting activations", len(images)) as advance:
        for start, rows in stream(engine, images, framing, view=view, batch=batch, faults=faults):
            if start == 0:
                activations = torch.empty(len(images), rows.shape[1])
            activations[start : start + len(rows)] = rows
            advance(len(rows))
    return activations


def stream(
    engine: Engine, images: Images, framing: Framing, *, start: int = 0, view: View = PLAIN, batch: int | None = None,
    faults: dict[int, DataError] | None = None,
) -> Iterator[tuple[int, Tensor]]:  # fmt: skip
    """Yield activations [batch d] from image `start` on, each with the position of its first image, in order."""
    step = min(MOST, max(1, PIXELS // framing.crop**2)) if batch is None else batch
    if step < 1:
        raise InputError(f"A batch must have at least one image, not {batch}.")

    def begin(first: int) -> tuple[int, PendingActivations]:
        def load(part: slice) -> Tensor:
            return view.load(images, slice(first + part.start, first + part.stop), framing, faults)

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

"""Sessions that train the network itself: its last residual block, on stored inputs of that block.

The FSCIL literature's rows of class-incremental methods freeze the network up to its last block. What comes before it
never changes, so its output is computed once for every image and stored; training and answering start from there. As
long as the block is the backbone's own, its output is the image's activation, which a method is given anyway. The batch
norms keep their statistics: a few shots would ruin them.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone
from masil.data import Images, ImageSource
from masil.hardware import precision, probe, resolve_device
from masil.methods.cuts import Cut, UpToLastBlock, last_blocks, network_of_blocks
from masil.methods.descent import Descends, take_step
from masil.methods.method import LargestScore, Queries, Samples, Task, state
from masil.training import shuffled_batches

CHUNK = 512  # rows run through the block at once


@final
class LastBlock(nn.Module):
    """A copy of what `UpToLastBlock` leaves out, to be trained; rows of its input [n c·h·w] become activations [n d].

    It stays in evaluation mode: batch norms keep their statistics. What is trained on may be computed in another type,
    `cast`; answers are in float32.
    """

    cast: torch.dtype | None = None

    def __init__(self, backbone: Backbone, shape: tuple[int, ...], *, stage: bool = False) -> None:
        super().__init__()
        self.shape = shape
        blocks = last_blocks(backbone, stage=stage)
        self.block = copy.deepcopy(nn.Sequential(*blocks) if stage else blocks[0]).requires_grad_(True).eval()

    def equals(self, backbone: Backbone, *, stage: bool = False) -> bool:
        """Say whether the block is that of a backbone, to the bit: then it makes the backbone's activations."""
        blocks = last_blocks(backbone, stage=stage)
        theirs = (nn.Sequential(*blocks) if stage else blocks[0]).parameters()
        return all(torch.equal(mine.cpu(), its.cpu()) for mine, its in zip(self.parameters(), theirs, strict=True))

    def maps(self, rows: Tensor) -> Tensor:
        """Run the block alone, [n d h w]."""
        maps: Tensor = self.block(rows.reshape(len(rows), *self.shape))
        return maps

    def forward(self, rows: Tensor) -> Tensor:
        """Run the block, as it is trained, and average over places."""
        with torch.autocast(rows.device.type, self.cast, enabled=self.cast is not None):
            maps = self.maps(rows)
        return functional.adaptive_avg_pool2d(maps.float(), 1).flatten(1)

    @torch.no_grad()
    def run(self, rows: Tensor, *, as_trained: bool = False) -> Tensor:
        """Give activations without gradients, a chunk at a time: from the processor, by way of the block's device.

        In float32, or `as_trained`: what is to be compared with what training sees.
        """
        device = next(self.parameters()).device
        chunks = torch.split(rows, CHUNK) if len(rows) else [rows]
        cast = self.cast
        self.cast = cast if as_trained else None
        try:
            return torch.cat([self(chunk.to(device)).cpu() for chunk in chunks])
        finally:
            self.cast = cast


def fresh_copy(backbone: Backbone) -> Backbone:
    """Give a network of the same shape that knows nothing yet, its weights drawn from torch's global generator."""
    network = copy.deepcopy(backbone).requires_grad_(True)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
            module.reset_parameters()
    return network


def fastest_type(device: str) -> torch.dtype | None:
    """Give bfloat16 where the choice is left to the machine and it trains faster in that, else None: float32."""
    if device != "auto":
        return None
    return torch.bfloat16 if precision(probe(), resolve_device(device).type) == "bfloat16" else None


def precision_remark(cast: torch.dtype | None) -> dict[str, str]:
    """Say for the record in which precision was trained, where it was not float32."""
    return {} if cast is None else {"trained_in": str(cast).removeprefix("torch.")}


@final
class SeenImages:
    """Rows of images that have been run before, and where they are, so that none is run again.

    The rows are mapped from disk. They are in slots, not among the attributes in which what a method keeps is counted,
    and copies of a method share them.
    """

    __slots__ = ("parts", "places")

    def __init__(self) -> None:
        self.parts: list[Tensor] = []
        self.places: dict[int, tuple[ImageSource, np.ndarray]] = {}  # by source: part and row of each image, or −1

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self

    def find(self, images: Images) -> np.ndarray:
        """Give part and row of each image, int64 [n 2]; −1 where it has not been run."""
        source = images.source
        if id(source) not in self.places:
            self.places[id(source)] = source, np.full((len(source), 2), -1)
        found: np.ndarray = self.places[id(source)][1][images.rows.numpy()]
        return found

    def add(self, images: Images, rows: Tensor) -> None:
        """Note what came out for images."""
        self.find(images)
        places = np.stack([np.full(len(rows), len(self.parts)), np.arange(len(rows))], 1)
        self.places[id(images.source)][1][images.rows.numpy()] = places
        self.parts.append(rows)

    def get(self, images: Images) -> Tensor:
        """Give the rows of images that have all been run; those that are one part are not copied."""
        places = torch.from_numpy(self.find(images))
        parts: list[int] = sorted(set(places[:, 0].tolist()))
        if len(parts) == 1 and torch.equal(places[:, 1], torch.arange(len(self.parts[parts[0]]))):
            return self.parts[parts[0]]
        rows = torch.empty(len(images), self.parts[parts[0]].shape[1])
        for part in parts:
            here = places[:, 0] == part
            rows[here] = self.parts[part][places[here, 1]]
        return rows


@final
class FrozenPart:
    """Gives images as rows of a network that is cut, by default before its last block.

    Each image is run once: of those asked for, the ones not seen before are run together and stored.
    """

    def __init__(self, backbone: Backbone, device: str, cut: Callable[[Backbone], Cut] = UpToLastBlock) -> None:
        self.network = cut(backbone).eval().requires_grad_(False)
        self.device = device
        self.store = ActivationStore()
        self.seen = SeenImages()

    def __call__(self, images: Images) -> Tensor:
        """Give rows [n c·h·w]."""
        if not len(images):
            return torch.empty(0, self.network.features)
        new = self.seen.find(images)[:, 0] < 0
        if new.any():
            fresh = images.subset(torch.from_numpy(new))
            self.seen.add(fresh, self.store.get(self.network, fresh, device=self.device))
        return self.seen.get(images)


@dataclass(kw_only=True)
class BlockMethod(Descends, LargestScore):
    """A method whose sessions train a network's last block, on stored inputs of that block."""

    sees = "images"
    trains = "network"

    # Whether sessions may train in a shorter type: they take hundreds of images a step.
    trains_fast: ClassVar[bool] = False

    frozen: FrozenPart = state()
    block: LastBlock = state()

    def check_task(self, task: Task) -> None:
        """Refuse a backbone without residual blocks, too."""
        super().check_task(task)
        network_of_blocks(task.network)

    def take_network(self, base: Samples, task: Task) -> None:
        """Choose what is open, cut the task's network before its last block, and copy that; `fit` calls it first."""
        self.choose(base, task)
        self.frozen = FrozenPart(task.network, task.device)
        self.block = LastBlock(task.network, self.frozen.network.shape).requires_grad_(False)
        self.block.cast = fastest_type(task.device) if self.trains_fast else None

    def remarks(self) -> dict[str, Any]:
        """Say in which precision was trained, where it was not float32."""
        cast = None if self.block is None else self.block.cast
        return {**super().remarks(), **precision_remark(cast)}

    def entering(self, queries: Queries) -> Tensor:
        """Give images as rows that enter the block, [n c·h·w]."""
        return self.frozen(queries.shown)

    def unit_features(self, entering: Tensor, *, as_trained: bool = False) -> Tensor:
        """Run the block as it is now, without gradients; give its activations at unit length, [n d]."""
        return functional.normalize(self.block.run(entering, as_trained=as_trained))

    def features_now(self, queries: Queries) -> Tensor:
        """Give what images come out of the block as, [n d]; until it is trained, these are the activations."""
        if self.block.equals(self.frozen.network.whole):
            return queries.activations.float()
        return self.block.run(self.entering(queries))

    def fine_tune(
        self, learnt: Iterable[Tensor], loss: Callable[[Tensor], Tensor], rows: int, *, steps: int, lr: float
    ) -> None:
        """Lower `loss`, a function of the row numbers of a batch, by SGD at a constant rate; a batch has all rows."""
        parameters = [parameter.requires_grad_() for parameter in learnt]
        optimiser = torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=5e-4)
        for chosen in shuffled_batches(rows, rows, steps, self.generator):
            value = loss(chosen)
            if not bool(value.isfinite()):
                break  # further steps would not lead back: the rate is too high
            take_step(optimiser, value)
        for parameter in parameters:
            parameter.requires_grad_(False)

    def fine_tune_steadily(
        self, learnt: Sequence[Tensor], loss: Callable[[Tensor], Tensor], rows: int, *, steps: int, lr: float
    ) -> None:
        """Fine-tune at a rate at which the loss of all rows does not grow."""

        def train(rate: float) -> None:
            self.fine_tune(learnt, loss, rows, steps=steps, lr=rate)

        self.steadily(learnt, train, lambda: loss(torch.arange(rows)), lr)

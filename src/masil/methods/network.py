"""Sessions that train the network itself: its last residual block, on stored inputs of that block.

The FSCIL literature's rows of class-incremental methods freeze the network up to its last block. What comes before it
never changes, so its output is computed once for every image and stored; training and answering start from there. The
batch norms keep their statistics: a few shots would ruin them.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone
from masil.data import Images
from masil.errors import InputError
from masil.methods.descent import Descends, take_step
from masil.methods.method import LargestScore, Queries, Samples, Task, state
from masil.training import shuffled_batches

CHUNK = 512  # rows run through the block at once


class Cut(Backbone):
    """A frozen network that is stopped early: pixels to maps of one `shape` [c h w] >= 0, flattened."""

    shape: tuple[int, ...]

    def __init__(self, backbone: Backbone, where: str) -> None:
        super().__init__(f"{backbone.name} {where}", 1, backbone.framing, mean=backbone.mean, std=backbone.std)
        self.whole = backbone
        self.where = where
        side = backbone.framing.crop
        with torch.no_grad():
            self.shape = tuple(self.maps(backbone.preprocess(torch.zeros(1, 3, side, side))).shape[1:])
        self.features = math.prod(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        """Give the maps in rows [n c·h·w]."""
        return self.maps(x).flatten(1)

    def config(self) -> dict[str, Any]:
        """Say where the network was cut."""
        return {**self.whole.config(), "cut": self.where}


@final
class UpToLastBlock(Cut):
    """A ResNet without its last block, or without its last stage: what sessions leave as it is."""

    def __init__(self, backbone: Backbone, *, stage: bool = False) -> None:
        stages = last_stage(backbone)
        self.kept = 0 if stage else len(stages) - 1  # blocks of the last stage
        super().__init__(backbone, "before the last stage" if stage else "before the last block")

    def maps(self, x: Tensor) -> Tensor:
        """Run all that is frozen."""
        x = self.whole.maxpool(torch.relu(self.whole.bn1(self.whole.conv1(x))))  # type: ignore[operator]
        for name in self.whole.stages[:-1]:  # type: ignore[index]
            x = self.whole.get_submodule(str(name))(x)
        for block in list(last_stage(self.whole))[: self.kept]:
            x = block(x)
        return x


@final
class LastMaps(Cut):
    """Any backbone before its pooling: the last feature map, averaged down to at most `side` × `side` places."""

    def __init__(self, backbone: Backbone, side: int) -> None:
        self.side = side
        super().__init__(backbone, f"maps of {side} x {side}")

    def maps(self, x: Tensor) -> Tensor:
        """Run all but the pooling over all places."""
        maps = self.whole.maps(x)
        h, w = (averages(int(places), self.side).to(maps) for places in maps.shape[2:])
        return h @ maps @ w.T


@final
class Turned(Backbone):
    """A backbone that sees every image turned by so many quarters of a circle."""

    def __init__(self, backbone: Backbone, quarters: int) -> None:
        name = f"{backbone.name} turned by {90 * quarters}"
        super().__init__(name, backbone.features, backbone.framing, mean=backbone.mean, std=backbone.std)
        self.whole = backbone
        self.quarters = quarters

    def maps(self, x: Tensor) -> Tensor:
        """Run the backbone on turned pixels."""
        return self.whole.maps(self._turned(x))

    def forward(self, x: Tensor) -> Tensor:
        """Give the activations of turned pixels."""
        activations: Tensor = self.whole(self._turned(x))
        return activations

    def config(self) -> dict[str, Any]:
        """Say by how much images are turned."""
        return {**self.whole.config(), "quarters": self.quarters}

    def _turned(self, x: Tensor) -> Tensor:
        for _ in range(self.quarters):
            x = x.transpose(2, 3).flip(2)  # a quarter, in operations that can be exported to ONNX
        return x


def averages(places: int, most: int) -> Tensor:
    """Give the matrix [m places] that averages a line of places down to m <= `most`, as adaptive pooling does.

    A product, unlike adaptive pooling, can be exported to ONNX whatever the sizes.
    """
    m = min(places, most)
    rows = torch.zeros(m, places)
    for row in range(m):
        first, last = row * places // m, -(-(row + 1) * places // m)
        rows[row, first:last] = 1 / (last - first)
    return rows


@final
class LastBlock(nn.Module):
    """A copy of what `UpToLastBlock` leaves out, to be trained; rows of its input [n c·h·w] become activations [n d].

    It stays in evaluation mode: batch norms keep their statistics.
    """

    def __init__(self, backbone: Backbone, shape: tuple[int, ...], *, stage: bool = False) -> None:
        super().__init__()
        self.shape = shape
        stages = list(last_stage(backbone))
        block = nn.Sequential(*stages) if stage else stages[-1]
        self.block = copy.deepcopy(block).requires_grad_(True).eval()

    def maps(self, rows: Tensor) -> Tensor:
        """Run the block alone, [n d h w]."""
        maps: Tensor = self.block(rows.reshape(len(rows), *self.shape))
        return maps

    def forward(self, rows: Tensor) -> Tensor:
        """Run the block and average over places."""
        return functional.adaptive_avg_pool2d(self.maps(rows), 1).flatten(1)

    @torch.no_grad()
    def run(self, rows: Tensor) -> Tensor:
        """Give activations without gradients, a chunk at a time: from the processor, by way of the block's device."""
        device = next(self.parameters()).device
        chunks = torch.split(rows, CHUNK) if len(rows) else [rows]
        return torch.cat([self(chunk.to(device)).cpu() for chunk in chunks])


def fresh_copy(backbone: Backbone) -> Backbone:
    """Give a network of the same shape that knows nothing yet, its weights drawn from torch's global generator."""
    network = copy.deepcopy(backbone).requires_grad_(True)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
            module.reset_parameters()
    return network


def last_stage(backbone: Backbone) -> nn.Sequential:
    """Give the blocks of a ResNet's last stage, or refuse another backbone."""
    stages = getattr(backbone, "stages", None)
    if not stages or not hasattr(backbone, "maxpool"):
        raise InputError(
            f"'{backbone.name}' has no residual blocks of which a session could train the last; use a ResNet."
        )
    stage = backbone.get_submodule(stages[-1])
    assert isinstance(stage, nn.Sequential)
    return stage


@final
class FrozenPart:
    """Gives images as rows of a network that is cut, by default before its last block; each is run once and stored."""

    def __init__(self, backbone: Backbone, device: str, cut: Callable[[Backbone], Cut] = UpToLastBlock) -> None:
        self.network = cut(backbone).eval().requires_grad_(False)
        self.device = device
        self.store = ActivationStore()

    def __call__(self, images: Images) -> Tensor:
        """Give rows [n c·h·w]."""
        return self.store.get(self.network, images, device=self.device)


@dataclass(kw_only=True)
class BlockMethod(Descends, LargestScore):
    """A method whose sessions train a network's last block, on stored inputs of that block."""

    sees = "images"
    trains = "network"

    frozen: FrozenPart = state()
    block: LastBlock = state()

    def check_task(self, task: Task) -> None:
        """Refuse a backbone without residual blocks, too."""
        super().check_task(task)
        last_stage(task.network)

    def take_network(self, base: Samples, task: Task) -> None:
        """Choose what is open, cut the task's network before its last block, and copy that; `fit` calls it first."""
        self.choose(base, task)
        self.frozen = FrozenPart(task.network, task.device)
        self.block = LastBlock(task.network, self.frozen.network.shape).requires_grad_(False)

    def entering(self, queries: Queries) -> Tensor:
        """Give images as rows that enter the block, [n c·h·w]."""
        return self.frozen(queries.shown)

    def unit_features(self, entering: Tensor) -> Tensor:
        """Run the block as it is now, without gradients; give its activations at unit length, [n d]."""
        return functional.normalize(self.block.run(entering))

    def fine_tune(
        self, learnt: Iterable[Tensor], loss: Callable[[Tensor], Tensor], rows: int, *, steps: int, lr: float
    ) -> None:
        """Lower `loss`, a function of the row numbers of a batch, by SGD at a constant rate; a batch has all rows."""
        parameters = [parameter.requires_grad_() for parameter in learnt]
        optimiser = torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=5e-4)
        for chosen in shuffled_batches(rows, rows, steps, self.generator):
            take_step(optimiser, loss(chosen))
        for parameter in parameters:
            parameter.requires_grad_(False)

    def fine_tune_steadily(
        self, learnt: Sequence[Tensor], loss: Callable[[Tensor], Tensor], rows: int, *, steps: int, lr: float
    ) -> None:
        """Fine-tune at a rate at which the loss of all rows does not grow."""

        def train(rate: float) -> None:
            self.fine_tune(learnt, loss, rows, steps=steps, lr=rate)

        self.steadily(learnt, train, lambda: loss(torch.arange(rows)), lr)

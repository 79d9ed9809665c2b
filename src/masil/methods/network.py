"""Sessions that train the network itself: its last residual block, on stored inputs of that block.

The FSCIL literature's rows of class-incremental methods freeze the network up to its last block. What comes before it
never changes, so its output is computed once for every image and stored; training and answering start from there. The
batch norms keep their statistics: a few shots would ruin them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones import ActivationStore, Backbone
from masil.data import Images
from masil.errors import InputError
from masil.training import shuffled_batches

CHUNK = 512  # rows run through the block at once


@final
class UpToLastBlock(Backbone):
    """The frozen part of a ResNet: pixels to the input of its last block [n c h w], flattened."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(f"{backbone.name} up to its last block", 1, backbone.framing, backbone.mean, backbone.std)
        self.whole = backbone
        side = backbone.framing.crop
        with torch.no_grad():
            self.shape = tuple(self.maps(backbone.preprocess(torch.zeros(1, 3, side, side))).shape[1:])
        self.features = int(torch.tensor(self.shape).prod())

    def maps(self, x: Tensor) -> Tensor:
        """Run all but the last block."""
        stages = last_stage(self.whole)
        x = self.whole.maxpool(torch.relu(self.whole.bn1(self.whole.conv1(x))))  # type: ignore[operator]
        for name in self.whole.stages[:-1]:  # type: ignore[index]
            x = self.whole.get_submodule(str(name))(x)
        for block in list(stages)[:-1]:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Give the maps in rows [n c·h·w]."""
        return self.maps(x).flatten(1)

    def config(self) -> dict[str, Any]:
        """Say where the network was cut."""
        return {**self.whole.config(), "cut": "before the last block"}


@final
class LastBlock(nn.Module):
    """A copy of a ResNet's last block, to be trained; rows of its input [n c·h·w] become activations [n d]."""

    def __init__(self, backbone: Backbone, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.block = copy.deepcopy(list(last_stage(backbone))[-1]).requires_grad_(True).eval()

    def forward(self, rows: Tensor) -> Tensor:
        """Run the block and average over places."""
        maps = self.block(rows.reshape(len(rows), *self.shape))
        return functional.adaptive_avg_pool2d(maps, 1).flatten(1)

    @torch.no_grad()
    def run(self, rows: Tensor) -> Tensor:
        """Give activations without gradients, a chunk at a time."""
        return torch.cat([self(chunk) for chunk in torch.split(rows, CHUNK)]) if len(rows) else self(rows)


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
    """Gives images as rows that enter the last block, each image run once and stored."""

    def __init__(self, backbone: Backbone, device: str, store: ActivationStore | None = None) -> None:
        self.network = UpToLastBlock(backbone).eval().requires_grad_(False)
        self.device = device
        self.store = ActivationStore() if store is None else store

    def __call__(self, images: Images) -> Tensor:
        """Give rows [n c·h·w]."""
        return self.store.get(self.network, images, device=self.device)


def fine_tune(
    learnt: Iterable[Tensor],
    loss: Callable[[Tensor], Tensor],
    rows: int,
    *,
    steps: int,
    batch: int,
    lr: float,
    generator: torch.Generator,
) -> None:
    """Lower `loss`, a function of the row numbers of a batch, by SGD at a constant rate."""
    parameters = [parameter.requires_grad_() for parameter in learnt]
    optimiser = torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=5e-4)
    for chosen in shuffled_batches(rows, batch, steps, generator):
        optimiser.zero_grad()
        loss(chosen).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for parameter in parameters:
        parameter.requires_grad_(False)

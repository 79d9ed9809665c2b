"""What runs a frozen backbone: uint8 pixels in, activations out, no gradients."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.errors import InputError

Load = Callable[[slice], Tensor]  # gives the pixels of some of the images, on whichever thread it is called


@final
@dataclass(frozen=True)
class Underway:
    """Images that an engine has begun on, in parts."""

    parts: Sequence[Future[Tensor]]
    finish: Callable[[list[Tensor]], Tensor]

    def result(self) -> Tensor:
        """Wait for their activations [n d]; of what went wrong, the first is raised."""
        return self.finish([part.result() for part in self.parts])

    def cancel(self) -> None:
        """Give up what has not begun."""
        for part in self.parts:
            part.cancel()


class Engine(ABC):
    """Gives the activations of pixels, with the weights that the backbone had when the engine was opened."""

    name: str
    size: int | None  # the side of the squares it takes; None = any

    def run(self, pixels: Tensor) -> Tensor:
        """Map uint8 [n 3 h w] to float32 activations [n d] on the processor."""
        self._check(pixels)
        return self._activations(pixels)

    def begin(self, load: Load, n: int, loader: Executor) -> Underway:
        """Begin on n images: here `loader` loads them ahead, and they are run when their activations are asked for."""
        return Underway([loader.submit(load, slice(0, n))], lambda loaded: self.run(loaded[0]))

    def _check(self, pixels: Tensor) -> None:
        right = pixels.dtype == torch.uint8 and pixels.ndim == 4 and pixels.shape[1] == 3
        if not right or (self.size is not None and pixels.shape[2:] != (self.size, self.size)):
            side = "h w" if self.size is None else f"{self.size} {self.size}"
            given = f"{pixels.dtype} of shape {list(pixels.shape)}"
            raise InputError(f"The engine takes uint8 pixels of shape [n 3 {side}], not {given}.")

    @abstractmethod
    def _activations(self, pixels: Tensor) -> Tensor:
        """Do what `run` promises; the pixels are right."""


@final
class TorchEngine(Engine):
    """A copy of the backbone in PyTorch: evaluation mode, float32, channels last."""

    name = "torch"
    size = None

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self.backbone = frozen_copy(backbone).to(device)
        self.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in its stubs

    @torch.inference_mode()
    def _activations(self, pixels: Tensor) -> Tensor:
        activations: Tensor = self.backbone(self.backbone.preprocess(pixels))
        return activations.cpu()


def frozen_copy(backbone: Backbone) -> Backbone:
    """Copy a backbone onto the processor in float32 and evaluation mode; the original may go on training."""
    return copy.deepcopy(backbone).eval().requires_grad_(False).to("cpu", torch.float32)

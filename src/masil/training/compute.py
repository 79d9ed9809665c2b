"""How a base session computes: device, precision, threads, and whether its longer stages are compiled."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any, final

import torch
from torch import Tensor

from masil.backbones import Backbone
from masil.errors import InputError, suggest
from masil.hardware import precision as found_precision
from masil.hardware import probe, set_threads
from masil.training.distributed import World
from masil.training.recipe import Recipe

LOG = logging.getLogger(__name__)
COMPILE_STEPS = 100  # at one image size; compiling costs as much as a few dozen steps
WARM, TIMED = 2, 5  # steps of either kind before the two are compared
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}


@final
@dataclass(frozen=True)
class ComputeSettings:
    """What the last bits of a result depend on; a checkpoint keeps it."""

    device: str
    precision: str
    compile: bool
    threads: int
    processes: int
    version: str  # of torch

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        return asdict(self)

    @property
    def cast(self) -> torch.dtype | None:
        """The type that autocast computes in, None for float32."""
        return DTYPES[self.precision]

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Say what differs from a checkpoint's engine."""
        ours = self.to_json()
        return [f"{key} {other.get(key)} then, {ours[key]} now" for key in ours if ours[key] != other.get(key)]


def choose_settings(device: torch.device, precision: str, recipe: Recipe, steps: int, world: World) -> ComputeSettings:
    """Ask the hardware what is fastest; a precision that is given is taken as it is."""
    if precision not in ("auto", *DTYPES):
        raise InputError(f"There is no precision called '{precision}'; {suggest(precision, ('auto', *DTYPES))}")
    if precision == "auto":
        precision = found_precision(probe(), device.type)
        if world.size == 1:
            set_threads()
    long = any(is_long(recipe, px, steps) for _, px in recipe.stages)
    compiles = recipe.compile and world.size == 1 and long and device.type in ("cpu", "cuda")
    return ComputeSettings(device.type, precision, compiles, torch.get_num_threads(), world.size, torch.__version__)


@final
class ForwardChoice:
    """Runs the backbone eagerly or compiled, whichever takes less time at an image size.

    This is found on real steps: the first at a size run eagerly, the next ones compiled; from then on the faster of the
    two. A backbone that cannot be compiled runs eagerly.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.seconds: dict[tuple[int, bool], list[float]] = {}  # of steps, by image size and whether compiled
        self.chosen: dict[int, bool] = {}

    @cached_property
    def compiled(self) -> Callable[[Tensor], Tensor]:
        """The backbone as a program for each image size; `dynamic` would make one slower program for all."""
        return torch.compile(self.backbone.forward, dynamic=False)

    def forward(self, px: int) -> Callable[[Tensor], Tensor]:
        """Give what the next step at this size runs."""
        return partial(self._try_compiled, px) if self._next(px) else self.backbone.forward

    def note(self, px: int, seconds: float) -> None:
        """Take in how long a step took, and decide once there are enough of both kinds."""
        if px in self.chosen:
            return
        self.seconds.setdefault((px, self._next(px)), []).append(seconds)
        eager, compiled = (self.seconds.get((px, kind), [])[WARM:] for kind in (False, True))
        if len(compiled) >= TIMED:
            self.chosen[px] = median(compiled) < median(eager)
            LOG.info(
                "At %d px a step takes %.2f s, compiled %.2f s; it runs %s.",
                px, median(eager), median(compiled), "compiled" if self.chosen[px] else "as it is",
            )  # fmt: skip

    def _next(self, px: int) -> bool:
        return self.chosen.get(px, len(self.seconds.get((px, False), [])) >= WARM + TIMED)

    def _try_compiled(self, px: int, x: Tensor) -> Tensor:
        try:
            return self.compiled(x)
        except Exception as error:
            if px in self.chosen:
                raise
            LOG.warning("The backbone cannot be compiled here (%s); it runs as it is.", type(error).__name__)
            self.chosen[px] = False
            return self.backbone.forward(x)


def is_long(recipe: Recipe, px: int, steps: int) -> bool:
    """Say whether an image size is trained for so many steps that compiling for it pays."""
    return steps * sum(epochs for epochs, side in recipe.stages if side == px) >= COMPILE_STEPS


def share_cores(world: World) -> None:
    """Divide the cores among the processes of this machine, unless the user has."""
    if world.size > 1 and "OMP_NUM_THREADS" not in os.environ:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
        torch.set_num_threads(max(1, torch.get_num_threads() // here))

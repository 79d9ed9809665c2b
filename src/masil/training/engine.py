"""How this run computes: device, precision, threads, and whether its longer stages are compiled."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, final

import torch

from masil.errors import InputError, suggest
from masil.hardware import compile_pays, probe, set_threads
from masil.hardware import precision as found_precision
from masil.training.distributed import World
from masil.training.recipe import Recipe

COMPILE_STEPS = 100  # at one image size; compiling costs as much as a few dozen steps and saves a tenth of each or more
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}


@final
@dataclass(frozen=True)
class Engine:
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


def choose_engine(device: torch.device, precision: str, recipe: Recipe, steps: int, world: World) -> Engine:
    """Ask the hardware what is fastest; a precision that is given is taken as it is."""
    if precision not in ("auto", *DTYPES):
        raise InputError(f"There is no precision called '{precision}'; {suggest(precision, ('auto', *DTYPES))}")
    if precision == "auto":
        precision = found_precision(probe(), device.type)
        if world.size == 1:
            set_threads()
    long = any(is_long(recipe, px, steps) for _, px in recipe.stages)
    compiles = recipe.compile and world.size == 1 and long and compile_pays(device.type)
    return Engine(device.type, precision, compiles, torch.get_num_threads(), world.size, torch.__version__)


def is_long(recipe: Recipe, px: int, steps: int) -> bool:
    """Say whether an image size is trained for so many steps that compiling for it pays."""
    return steps * sum(epochs for epochs, side in recipe.stages if side == px) >= COMPILE_STEPS


def share_cores(world: World) -> None:
    """Divide the cores among the processes of this machine, unless the user has."""
    if world.size > 1 and "OMP_NUM_THREADS" not in os.environ:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
        torch.set_num_threads(max(1, torch.get_num_threads() // here))

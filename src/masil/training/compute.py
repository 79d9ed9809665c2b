"""How a base session computes: device, precision, threads, whether it is compiled, and how processes share the work."""

import logging
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from statistics import median
from typing import Any, final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from masil.backbones import Backbone
from masil.errors import DeviceError, InputError, lookup
from masil.hardware import precision as found_precision
from masil.hardware import probe, set_threads
from masil.training.recipe import Recipe

LOG = logging.getLogger(__name__)
TRIAL_STEPS = 100  # at one image size; a trial of what is fastest there costs as much as a few dozen steps
WARM, TIMED = 2, 5  # steps of either kind before the two are compared
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}


@final
@dataclass(frozen=True)
class World:
    """Which of how many processes this is. torchrun starts them, and each takes its share of every batch."""

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        """Say whether this process writes files and log lines."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Give the rows of a global batch of n that are this process's; the mean of unequal means is another loss."""
        if n % self.size:
            raise InputError(
                f"A batch of {n} images cannot be shared evenly by {self.size} processes; "
                f"choose a multiple of {self.size}."
            )
        rows = n // self.size
        return slice(self.rank * rows, (self.rank + 1) * rows)

    def mean(self, value: Tensor) -> float:
        """Give the mean of a number over all processes."""
        total = value.detach().clone()
        if self.size > 1:
            distributed.all_reduce(total)
        return float(total) / self.size

    def wait(self) -> None:
        """Wait for all processes."""
        if self.size > 1:
            distributed.barrier()

    def wrap_ddp(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Wrap a network so that gradients are those of the global batch.

        On cards batch norms see the global batch too. On processors torch has no such batch norm: each process
        normalises its own share of a batch, so results are those of one process only where batch norms are frozen.
        """
        if self.size == 1:
            return network
        cards = None
        if device.type == "cuda":
            network, cards = nn.SyncBatchNorm.convert_sync_batchnorm(network), [device.index]  # type: ignore[no-untyped-call]
        return DistributedDataParallel(network, device_ids=cards, broadcast_buffers=False)


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """Join the other processes that torchrun started, if it did, and leave them at the end."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    initialised = distributed.is_available() and distributed.is_initialized()
    if size == 1 and not initialised:
        yield World()
        return
    if not initialised:
        if "RANK" not in os.environ:
            raise DeviceError(f"WORLD_SIZE is {size} but RANK is not set; start all processes with torchrun.")
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(distributed.get_rank(), distributed.get_world_size())
    finally:
        if not initialised:
            distributed.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """Give each process of a machine its own card."""
    local = os.environ.get("LOCAL_RANK")
    return torch.device("cuda", int(local)) if str(device) == "cuda" and local is not None else device


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

    @property
    def cast(self) -> torch.dtype | None:
        """The type that autocast computes in, None for float32."""
        return DTYPES[self.precision]

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Say what differs from a checkpoint's settings."""
        return [
            f"{key} {other.get(key)} then, {ours} now" for key, ours in asdict(self).items() if ours != other.get(key)
        ]


def choose_settings(device: torch.device, precision: str, compiles: bool, world: World) -> ComputeSettings:
    """Ask the hardware which precision is fastest, unless one is given; one process alone may compile."""
    lookup("precision", precision, {"auto": None, **DTYPES})
    if precision == "auto":
        precision = found_precision(probe(), device.type)
        if world.size == 1:
            set_threads()
    compiles = compiles and world.size == 1 and device.type in ("cpu", "cuda")
    return ComputeSettings(
        device.type, precision, compiles, threads=torch.get_num_threads(), processes=world.size,
        version=torch.__version__,
    )  # fmt: skip


def long_sizes(recipe: Recipe, steps: int) -> set[int]:
    """Give the image sizes that are trained for so many steps, of so many an epoch, that trials pay."""
    epochs = {px: sum(count for count, side in recipe.stages if side == px) for _, px in recipe.stages}
    return {px for px, count in epochs.items() if steps * count >= TRIAL_STEPS}


@final
class ForwardChoice:
    """Runs the backbone eagerly or compiled, whichever takes less time at an image size.

    This is found on real steps: the first at a size run eagerly, the next ones compiled; from then on the faster of the
    two. A backbone that cannot be compiled runs eagerly, and so do sizes that are not in `sizes`.
    """

    def __init__(self, backbone: Backbone, sizes: Collection[int]) -> None:
        self.backbone = backbone
        self.sizes = sizes
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
        if px in self.chosen or px not in self.sizes:
            return
        self.seconds.setdefault((px, self._next(px)), []).append(seconds)
        eager, compiled = (self.seconds.get((px, kind), [])[WARM:] for kind in (False, True))
        if len(compiled) >= TIMED:
            self.chosen[px] = median(compiled) < median(eager)
            times = f"{median(eager):.2f} s, compiled {median(compiled):.2f} s"
            LOG.info("At %d px a step takes %s; it runs %s.", px, times, "compiled" if self.chosen[px] else "as it is")

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

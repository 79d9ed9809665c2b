"""Several processes that train as one: started by torchrun, each takes its share of every batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from masil.errors import DeviceError, InputError


@final
@dataclass(frozen=True)
class World:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        """Say whether this process writes files and log lines."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """Give the rows of a global batch of n that are this process's."""
        each = n // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

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

    def check_batch(self, batch: int) -> None:
        """Refuse a batch that cannot be dealt out evenly: the mean of unequal means is another loss."""
        if batch % self.size:
            raise InputError(
                f"A batch of {batch} images cannot be shared evenly by {self.size} processes; "
                f"choose a multiple of {self.size}."
            )


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """Join the other processes that torchrun started, if it did, and leave them at the end."""
    if distributed.is_available() and distributed.is_initialized():
        yield World(distributed.get_rank(), distributed.get_world_size())
        return
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    if "RANK" not in os.environ:
        raise DeviceError(f"WORLD_SIZE is {size} but RANK is not set; start all processes with torchrun.")
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """Give each process of a machine its own card."""
    local = os.environ.get("LOCAL_RANK")
    if str(device) == "cuda" and local is not None:
        return torch.device("cuda", int(local))
    return device


def wrap_ddp(network: nn.Module, world: World, device: torch.device) -> nn.Module:
    """Wrap a network so that gradients are those of the global batch.

    On cards batch norms see the global batch too. On processors torch has no such batch norm: each process normalises
    its own share of a batch, so results are those of one process only where batch norms are frozen.
    """
    if world.size == 1:
        return network
    cards = None
    if device.type == "cuda":
        network, cards = nn.SyncBatchNorm.convert_sync_batchnorm(network), [device.index]  # type: ignore[no-untyped-call]
    return DistributedDataParallel(network, device_ids=cards, broadcast_buffers=False)

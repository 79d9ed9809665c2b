"""Several processes that train as one: started by torchrun, the same global batch, the same result to rounding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

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


def spread(network: nn.Module, world: World, device: torch.device) -> nn.Module:
    """Wrap a network so that gradients, and the statistics of its batch norms, are those of the global batch."""
    if world.size == 1:
        return network
    share_batch_norm(network, device)
    cards = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(network, device_ids=cards, broadcast_buffers=False)


def share_batch_norm(module: nn.Module, device: torch.device) -> None:
    """Let batch norms see the global batch, by torch's own means on cards; their parameters stay the same."""
    if device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:
            shared = SharedBatchNorm2d(child.num_features, child.eps, child.momentum)
            shared._parameters, shared._buffers, shared.training = child._parameters, child._buffers, child.training
            setattr(module, name, shared)
        else:
            share_batch_norm(child, device)


@final
class SharedBatchNorm2d(nn.BatchNorm2d):
    """A batch norm over the images of all processes, on devices for which torch has none."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [n c h w] by the mean and variance over all processes, and move the running ones."""
        if not self.training:
            return super().forward(x)
        count = x.numel() // x.shape[1] * distributed.get_world_size()
        mean = _summed(x.sum((0, 2, 3))) / count
        centred = x - mean[None, :, None, None]
        variance = _summed(centred.square().sum((0, 2, 3))) / count
        self._track(mean.detach(), variance.detach() * count / (count - 1))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.bias[None, :, None, None], centred, scale[None, :, None, None])

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(variance, weight)


def _summed(value: Tensor) -> Tensor:
    result: Tensor = _Sum.apply(value)  # type: ignore[no-untyped-call]
    return result


class _Sum(torch.autograd.Function):
    """The sum over all processes. Every process's loss depends on it, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:  # noqa: ARG004
        return _all_reduced(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _all_reduced(gradient)


def _all_reduced(value: Tensor) -> Tensor:
    total = value.contiguous().clone()
    distributed.all_reduce(total)
    return total

"""What a trial tries, in a child process: `python -m masil.hardware.trials DEVICE`.

Small pieces of the work masil does, each checked against double precision or timed. The child may die of any of them.
So it says which stage it begins before it begins it, and the deadly ones come last.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.hardware import machine
from masil.hardware.decide import START, Precision
from masil.hardware.threads import best_seconds
from masil.storage import Parent

SEED = 0
# Largest error of any entry, as a share of the largest entry. float32 leaves room for TF32 (10 bits), bfloat16 has 8.
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 2e-2}

Say = Callable[[dict[str, Any]], None]


class WrongNumbersError(ArithmeticError):
    """The machine computed something, but not what it was asked."""


def main(name: str, say: Say) -> None:
    """Choose the threads, train in float32, then train in bfloat16, where machines that lie are found out."""
    with suppress(ImportError, ValueError, OSError):  # a child that dies leaves no core file
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    device = torch.device(name)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    devices = [name for name, there in available.items() if there]
    say({"stage": START, "torch": torch.__version__, "devices": devices})
    physical, busy = torch.get_num_threads(), machine.load() > machine.BUSY
    if busy:  # several threads would wait for each other, which drowns the differences
        torch.set_num_threads(1)
    if device.type == "cpu":
        attempt("threads", lambda: {"fastest": _threads(physical, busy)}, say)

    def train(dtype: torch.dtype) -> dict[str, Any]:
        step, n = training_step(device, dtype)
        return {"images/s": n / best_seconds(step, device)}

    for precision in get_args(Precision):
        dtype = getattr(torch, precision)
        attempt(f"{precision} matrix product", lambda: {"GFLOP/s": matrix_product(device, dtype)}, say)  # noqa: B023
        attempt(f"{precision} convolution", lambda: {"GFLOP/s": convolution(device, dtype)}, say)  # noqa: B023
        attempt(f"{precision} training", lambda: train(dtype), say)  # noqa: B023
    say({"done": True})


def _threads(physical: int, busy: bool) -> int:
    """Compare one thread per usable logical core with one per physical core, and keep the faster."""

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        return best_seconds(step, cpu)

    few, many = min(machine.usable_cores(), physical), machine.usable_cores()
    if busy:
        return few
    cpu = torch.device("cpu")
    step, _ = training_step(cpu, torch.float32)
    best = min(few, many, key=seconds) if few < many else few
    torch.set_num_threads(best)  # fewer than torch's own choice where a container has a quota
    return best


def attempt(stage: str, work: Callable[[], dict[str, Any]], say: Say) -> None:
    """Begin a stage and say what it measured, or how it failed."""
    say({"begin": stage})
    try:
        say({"stage": stage, **work()})
    except Exception as error:  # noqa: BLE001  whatever a stage raises is its answer
        say({"stage": stage, "error": f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]})


def matrix_product(device: torch.device, dtype: torch.dtype) -> float:
    """Multiply x [n d] by w [d k], forward and backward, check the numbers, and give GFLOP/s."""
    side = 768 if device.type == "cpu" else 4096
    products = 3 * side**3  # y = x w, ∂x = ∂y wᵀ, ∂w = xᵀ ∂y
    return 2 * products / _checked_seconds(torch.matmul, ((side, side), (side, side)), device, dtype) / 1e9


def convolution(device: torch.device, dtype: torch.dtype) -> float:
    """Convolve x [n c h w] with 3 × 3 filters, forward and backward, check the numbers, and give GFLOP/s."""
    n, c, side = (32, 64, 16) if device.type == "cpu" else (256, 128, 32)
    products = 3 * n * c * c * side**2 * 9
    shapes = ((n, c, side, side), (c, c, 3, 3))
    return 2 * products / _checked_seconds(partial(functional.conv2d, padding=1), shapes, device, dtype) / 1e9


def _checked_seconds(
    product: Callable[[Tensor, Tensor], Tensor], shapes: Sequence[Sequence[int]], device: torch.device,
    dtype: torch.dtype,
) -> float:  # fmt: skip
    """Compare y, ∂x and ∂w with double precision on the same rounded inputs, then give the time that they take."""
    generator = torch.Generator().manual_seed(SEED)
    layout = torch.channels_last if len(shapes[0]) == 4 else torch.contiguous_format

    def forward_and_backward(x: Tensor, w: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = product(x, w)
        return (y.detach(), *torch.autograd.grad(y, (x, w), upstream))

    # y has the shape of x in both products.
    rounded = [torch.randn(*shape, generator=generator).to(dtype) for shape in (*shapes, shapes[0])]
    placed = [tensor.to(device, memory_format=layout) for tensor in rounded]
    expected = forward_and_backward(*(tensor.double() for tensor in rounded))
    for name, right, got in zip(("y", "∂x", "∂w"), expected, forward_and_backward(*placed), strict=True):
        error = float((got.double().cpu() - right).abs().max() / right.abs().max())
        if not error <= TOLERANCE[dtype]:  # NaN, too, is wrong
            raise WrongNumbersError(f"wrong numbers: {name} is off by {error:.2g} of its largest entry")
    return best_seconds(lambda: forward_and_backward(*placed), device)


def _small_net() -> nn.Module:
    """Give a network with each kind of layer that masil trains: dense, strided, depthwise, 1 × 1, linear."""

    def block(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(c_out), nn.ReLU()]

    return nn.Sequential(
        *block(3, 64, 3), *block(64, 128, 3, stride=2), *block(128, 128, 3, groups=128), *block(128, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 16),
    )  # fmt: skip


def training_step(device: torch.device, dtype: torch.dtype) -> tuple[Callable[[], None], int]:
    """Give a function that makes one training step of a small network, as the trainer does, and its images."""
    generator = torch.Generator().manual_seed(SEED)
    n = 16 if device.type == "cpu" else 1024
    x = torch.rand(n, 3, 32, 32, generator=generator).to(device, memory_format=torch.channels_last)
    y = torch.randint(16, (n,), generator=generator).to(device)
    net = _small_net().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = functional.cross_entropy(net(x), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if not bool(loss.isfinite()):
            raise WrongNumbersError("wrong numbers: the loss is not finite")

    return step, n


if __name__ == "__main__":
    main(sys.argv[1], Parent().send)

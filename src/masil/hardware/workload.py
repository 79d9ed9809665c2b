"""Small pieces of the work masil does, each checked against double precision or timed: what a trial tries."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

SEED = 0
# Largest error of any entry, as a share of the largest entry. float32 leaves room for TF32 (10 bits), bfloat16 has 8.
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 2e-2}
GIGA = 1e9


class WrongNumbersError(ArithmeticError):
    """The machine computed something, but not what it was asked."""


def best_seconds(work: Callable[[], object], device: torch.device, budget: float = 0.15) -> float:
    """Time `work` again and again for `budget` seconds and give the best: noise only ever adds time.

    The first run warms up and counts only if it alone uses up the budget: what is that slow need not be known exactly.
    """
    spent: list[float] = []
    while sum(spent) < budget:
        start = time.perf_counter()
        work()
        _finish(device)
        spent.append(time.perf_counter() - start)
    return min(spent[1:] or spent)


def matrix_product(device: torch.device, dtype: torch.dtype) -> float:
    """Multiply x [n d] by w [d k], forward and backward, check the numbers, and give GFLOP/s."""
    side = 768 if device.type == "cpu" else 4096
    flops = 3 * 2 * side**3  # y = x w, ∂x = ∂y wᵀ, ∂w = xᵀ ∂y
    return _checked_speed(torch.matmul, (side, side), (side, side), flops, device, dtype)


def convolution(device: torch.device, dtype: torch.dtype) -> float:
    """Convolve x [n c h w] with 3 × 3 filters, forward and backward, check the numbers, and give GFLOP/s."""
    n, c, side = (32, 64, 16) if device.type == "cpu" else (256, 128, 32)
    flops = 3 * 2 * n * c * c * side**2 * 9
    return _checked_speed(_same_convolution, (n, c, side, side), (c, c, 3, 3), flops, device, dtype)


def _same_convolution(x: Tensor, w: Tensor) -> Tensor:
    return functional.conv2d(x, w, padding=1)


def _checked_speed(
    product: Callable[[Tensor, Tensor], Tensor], x_shape: Sequence[int], w_shape: Sequence[int], flops: int,
    device: torch.device, dtype: torch.dtype,
) -> float:  # fmt: skip
    """Compare y, ∂x and ∂w with double precision on the same rounded inputs, then give GFLOP/s."""
    generator = torch.Generator().manual_seed(SEED)
    layout = torch.channels_last if len(x_shape) == 4 else torch.contiguous_format

    def forward_and_backward(x: Tensor, w: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = product(x, w)
        return (y.detach(), *torch.autograd.grad(y, (x, w), upstream))

    # y has the shape of x in both products
    rounded = [torch.randn(*shape, generator=generator).to(dtype) for shape in (x_shape, w_shape, x_shape)]
    placed = [tensor.to(device, memory_format=layout) for tensor in rounded]
    expected = forward_and_backward(*(tensor.double() for tensor in rounded))
    for name, right, got in zip(("y", "∂x", "∂w"), expected, forward_and_backward(*placed), strict=True):
        error = float((got.double().cpu() - right).abs().max() / right.abs().max())
        if not error <= TOLERANCE[dtype]:  # NaN, too, is wrong
            raise WrongNumbersError(f"wrong numbers: {name} is off by {error:.2g} of its largest entry")
    return flops / best_seconds(lambda: forward_and_backward(*placed), device) / GIGA


class SmallNet(nn.Sequential):
    """A convolutional network with each kind of layer that masil trains: dense, strided, depthwise, 1 × 1, linear."""

    def __init__(self) -> None:
        def block(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
            layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
            return [layer, nn.BatchNorm2d(c_out), nn.ReLU()]

        super().__init__(
            *block(3, 64, 3), *block(64, 128, 3, stride=2), *block(128, 128, 3, groups=128), *block(128, 128, 1),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 16),
        )  # fmt: skip


def training_step(
    device: torch.device, dtype: torch.dtype, *, compiled: bool = False
) -> tuple[Callable[[], None], int]:
    """Give a function that makes one training step of `SmallNet`, as the trainer makes it, and its number of images."""
    generator = torch.Generator().manual_seed(SEED)
    n = 16 if device.type == "cpu" else 1024
    x = torch.rand(n, 3, 32, 32, generator=generator).to(device, memory_format=torch.channels_last)
    y = torch.randint(16, (n,), generator=generator).to(device)
    net = SmallNet().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # stubs lack it
    forward = torch.compile(net) if compiled else net
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = functional.cross_entropy(forward(x), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if not bool(loss.isfinite()):
            raise WrongNumbersError("wrong numbers: the loss is not finite")

    return step, n


def _finish(device: torch.device) -> None:
    """Wait for a device that works behind our back; timing it without this times only the asking."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()

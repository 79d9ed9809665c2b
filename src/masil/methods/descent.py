"""Two ways down a loss: mini-batches with momentum, and, where the loss is convex, all the way to the bottom."""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

MOMENTUM = 0.9


def batches(rows: int, size: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `steps` batches of at most `size` row numbers, shuffled, every row once before any comes again."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if not len(left):
            left = torch.randperm(rows, generator=generator)
        yield left[:size]
        left = left[size:]


def descend(
    parameters: Iterable[Tensor],
    loss: Callable[[Tensor], Tensor],
    rows: int,
    *,
    steps: int,
    batch: int,
    rate: float,
    generator: torch.Generator,
    decay: float = 5e-4,
) -> None:
    """Lower `loss`, a function of the rows of a batch, by SGD; the rate falls from `rate` to 0 along a cosine."""
    learnt = [parameter.requires_grad_() for parameter in parameters]
    optimiser = torch.optim.SGD(learnt, rate, momentum=MOMENTUM, nesterov=True, weight_decay=decay)
    for step, chosen in enumerate(batches(rows, batch, steps, generator)):
        optimiser.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        loss(chosen).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for parameter in learnt:
        parameter.requires_grad_(False)


def settle(parameter: Tensor, loss: Callable[[], Tensor], iterations: int = 100) -> None:
    """Take `parameter` to the minimum of a convex `loss` by L-BFGS; nothing is random and no rate is chosen."""
    optimiser = torch.optim.LBFGS(
        [parameter.requires_grad_()], max_iter=iterations, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    parameter.requires_grad_(False)


def epochs(count: int, rows: int, batch: int) -> int:
    """Give the steps in which `rows` are seen `count` times."""
    return count * -(-rows // batch)

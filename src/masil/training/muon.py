"""Muon: momentum whose every step is made orthogonal, for the weights of convolutions.

`torch.optim.Muon` takes matrices alone, works in bfloat16 whatever the processor makes of it, and goes over them one by
one. Here a convolution [o c h w] is the matrix [o, c·h·w], the precision is the weights' own, equal shapes are worked
on together, and the weights keep their norm.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor

# p(s) = 3.4445 s − 4.775 s³ + 2.0315 s⁵ brings singular values in (0, 1] near 1 within a few rounds (Jordan 2024).
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315


@final
class Muon(torch.optim.Optimizer):
    """W ← √o W/‖W‖ − lr · orthogonal(g + momentum · m), m ← momentum · m + g.

    With ‖W‖ = √o and an orthogonal step of about that norm, the learning rate is the relative change of a weight. The
    batch norm behind a convolution makes its scale free, and so the constraint costs nothing.
    """

    def __init__(self, params: Iterable[Any], lr: float, momentum: float = 0.9, rounds: int = 3) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "rounds": rounds})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step; weights without a gradient stay as they are."""
        assert closure is None
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    alike[tuple(weight.shape)].append(weight)
            for shape, weights in alike.items():
                moved = torch.stack([as_matrix(self._nesterov(weight, group["momentum"])) for weight in weights])
                for weight, update in zip(weights, orthogonal(moved, group["rounds"]), strict=True):
                    matrix = as_matrix(weight)
                    matrix.mul_(shape[0] ** 0.5 / matrix.norm().clamp_min(1e-12)).sub_(update, alpha=group["lr"])

    def _nesterov(self, weight: Tensor, momentum: float) -> Tensor:
        assert weight.grad is not None
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        buffer: Tensor = state["momentum_buffer"]
        buffer.mul_(momentum).add_(weight.grad)
        return weight.grad.add(buffer, alpha=momentum)


def as_matrix(weight: Tensor) -> Tensor:
    """View [o c h w] as [o, c·h·w], columns in the order of memory: their order does not matter, a copy would."""
    return weight.flatten(1) if weight.is_contiguous() else weight.movedim(1, -1).flatten(1)


def orthogonal(matrices: Tensor, rounds: int = 3) -> Tensor:
    """Send the singular values of matrices [b m n] towards 1, keeping their singular vectors, by Newton–Schulz rounds.

    A round is X ← U X with U = l I + c G + q G² and G = X Xᵀ. Every U is a polynomial in the first G, so they commute,
    and the rounds need only m × m matrices: X ← (… U₂ U₁) X at the end, G ← U G U in between. For the 512 × 4608 of a
    ResNet's last stage that is half the arithmetic of multiplying X in every round.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.transpose(1, 2), rounds).transpose(1, 2)
    X = matrices / matrices.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None]
    G = X @ X.mT
    product: Tensor | None = None
    for remaining in reversed(range(rounds)):
        U = torch.baddbmm(G, G, G, beta=CUBIC, alpha=QUINTIC)
        U.diagonal(dim1=1, dim2=2).add_(LINEAR)
        product = U if product is None else U @ product
        if remaining:
            G = U @ G @ U
    result: Tensor = X if product is None else product @ X
    return result

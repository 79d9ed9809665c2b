"""DeepInversion: images made from noise, of a class and with the statistics of its batch norms (Yin et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional


@final
@dataclass(frozen=True)
class Inversion:
    """How images are made: by so many rounds of Adam, whose rate falls along a cosine.

    The loss is ℓ(logits, label) + `statistics` · the gap to the batch norms' statistics + `smooth` · Σ of the norms of
    four differences between neighbours.
    """

    rounds: int = 100
    lr: float = 0.1
    statistics: float = 3.0
    smooth: float = 2.5e-5
    shift: int = 2  # pixels by which images are moved, at random, before each round


@final
@dataclass
class StatisticsGap:
    """How far the inputs of batch norms are from what they remember, the mean over the norms of one forward pass.

    A norm counts ‖var − its var‖/‖its var‖ + ‖mean − its mean‖/‖its deviation‖, so that no layer outweighs the others
    and the weight means the same for every network.
    """

    terms: list[Tensor] = field(default_factory=list)

    def note(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Be a hook before a batch norm."""
        assert isinstance(module, nn.BatchNorm2d)
        assert module.running_mean is not None
        assert module.running_var is not None
        variance, mean = torch.var_mean(inputs[0], (0, 2, 3), correction=0)
        size = torch.linalg.vector_norm
        of_variance = size(variance - module.running_var) / size(module.running_var)
        of_mean = size(mean - module.running_mean) / size(module.running_var.sqrt())
        self.terms.append(of_variance + of_mean)

    def take(self) -> Tensor:
        """Give the mean since the last call."""
        gap = torch.stack(self.terms).mean()
        self.terms.clear()
        return gap


@contextmanager
def watch_statistics(norms: Iterable[nn.BatchNorm2d]) -> Iterator[StatisticsGap]:
    """Measure the gap of every forward pass within this block; the hooks are taken away again."""
    gap = StatisticsGap()
    hooks = [norm.register_forward_pre_hook(gap.note) for norm in norms]
    try:
        yield gap
    finally:
        for hook in hooks:
            hook.remove()


def synthesise(
    logits: Callable[[Tensor], Tensor],
    norms: Iterable[nn.BatchNorm2d],
    labels: Tensor,
    side: int,
    how: Inversion,
    generator: torch.Generator,
) -> Tensor:
    """Make an image of each label [n], normalised pixels [n 3 side side], by Adam from noise.

    `logits` is a network in evaluation mode. The statistics are those of all images together, so there should be some
    dozens, of many classes.
    """
    pixels = torch.randn(len(labels), 3, side, side, generator=generator).to(labels.device).requires_grad_()
    optimiser = torch.optim.Adam([pixels], how.lr)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, how.rounds)
    with watch_statistics(norms) as gap:
        for _ in range(how.rounds):
            moves = torch.randint(-how.shift, how.shift + 1, (2,), generator=generator).tolist()
            loss = functional.cross_entropy(logits(pixels.roll(moves, (2, 3))), labels)
            loss = loss + how.statistics * gap.take() + how.smooth * roughness(pixels)
            (pixels.grad,) = torch.autograd.grad(loss, pixels)
            optimiser.step()
            rates.step()
    return pixels.detach()


def roughness(pixels: Tensor) -> Tensor:
    """Give ‖∂x‖ + ‖∂y‖ + the norms of both diagonal differences."""
    differences = (
        pixels[..., :, 1:] - pixels[..., :, :-1],
        pixels[..., 1:, :] - pixels[..., :-1, :],
        pixels[..., 1:, 1:] - pixels[..., :-1, :-1],
        pixels[..., 1:, :-1] - pixels[..., :-1, 1:],
    )
    return torch.stack([torch.linalg.vector_norm(difference) for difference in differences]).sum()

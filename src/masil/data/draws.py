"""Random numbers for a batch: one per image, from a given generator, wherever the images are."""

import torch
from torch import Tensor

from masil.errors import InputError


def uniform(shape: tuple[int, ...], low: float, high: float, generator: torch.Generator) -> Tensor:
    """Draw float32 numbers in [low, high) on the generator's own device, so that one seed serves every device."""
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def whole(counts: Tensor, generator: torch.Generator) -> Tensor:
    """Draw, for every entry of `counts`, a whole number in [0, count)."""
    share = torch.rand(counts.shape, generator=generator, device=generator.device, dtype=torch.float64)
    return (share * counts.to(generator.device)).long()


def permutation(n: int, generator: torch.Generator) -> Tensor:
    """Draw an order of n things."""
    return torch.randperm(n, generator=generator, device=generator.device)


def check_images(x: Tensor, dtypes: tuple[torch.dtype, ...] = ()) -> Tensor:
    """Refuse what is not a batch of images [n c h w] in floating point (or one of `dtypes`)."""
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise InputError(f"Images must have the shape [n c h w], but have {list(x.shape)}; is the batch axis missing?")
    if not (x.is_floating_point() or x.dtype in dtypes):
        raise InputError(f"Images must be floating point in [0, 1], but are {x.dtype}; divide uint8 pixels by 255.")
    return x


def check_probability(name: str, value: float) -> None:
    """Refuse what is not a probability."""
    if not 0 <= value <= 1:
        raise InputError(f"{name} is {value}, but must lie in [0, 1].")

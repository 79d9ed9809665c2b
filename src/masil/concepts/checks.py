"""What may come in as activations, seen a block at a time so that a store larger than memory will do."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from masil.errors import InputError

BLOCK_ROWS = 1 << 16


def blocks(activations: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield consecutive rows, each block with the position of its first row."""
    for start in range(0, len(activations), BLOCK_ROWS):
        yield start, activations[start : start + BLOCK_ROWS]


def check_activations(activations: Tensor, features: int | None = None) -> None:
    """Refuse what cannot be activations: anything but finite floats [n d] >= 0, with `features` features."""
    if activations.ndim != 2:
        raise InputError(f"Activations must have the shape [n d], but have {list(activations.shape)}.")
    if activations.dtype not in (torch.float32, torch.float64):
        raise InputError(f"The activations are {dtype_name(activations.dtype)}; convert them to float32 or float64.")
    if features is not None and activations.shape[1] != features:
        raise InputError(
            f"The activations have {activations.shape[1]} features but the concept bank has {features}; "
            "were they computed with the same backbone?"
        )
    for _, block in blocks(activations):
        check_values("activations", block)


def check_values(name: str, values: Tensor) -> None:
    """Refuse values that are not finite or not >= 0."""
    if not values.numel():
        return
    least, most = (float(bound) for bound in values.detach().aminmax())
    if not (math.isfinite(least) and math.isfinite(most)):
        rows = int((~values.isfinite()).any(1).sum())
        raise InputError(f"The {name} have NaN or infinite values in {rows} of {len(values)} rows.")
    if least < 0:
        raise InputError(
            f"The {name} go down to {least:.3g}, but concepts need activations >= 0; "
            "were they taken before the ReLU, or are they embeddings?"
        )


def dtype_name(dtype: torch.dtype) -> str:
    """Name a number format as people do: float32."""
    return str(dtype).removeprefix("torch.")

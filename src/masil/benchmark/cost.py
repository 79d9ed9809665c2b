"""What a method costs: the memory of its process, and the bytes that it keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn


def peak_bytes() -> int:
    """Give the most memory this process has held; 0 where the system does not say (Windows)."""
    with suppress(ImportError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most
    return 0


def model_bytes(method: object) -> int:
    """Count the bytes of every tensor and array that a method keeps, each one once."""
    sizes: dict[tuple[int, int], int] = {}
    for block in _blocks(method, set()):
        address = block.data_ptr() if isinstance(block, Tensor) else block.ctypes.data
        sizes[address, block.nbytes] = block.nbytes
    return sum(sizes.values())


def _blocks(thing: object, met: set[int]) -> Iterator[Tensor | np.ndarray]:
    """Walk whatever an object holds."""
    if id(thing) in met or isinstance(thing, str | bytes | int | float | type | ModuleType | None):
        return
    met.add(id(thing))
    if isinstance(thing, Tensor | np.ndarray):
        yield thing
        return
    if isinstance(thing, nn.Module):
        held: Any = [*thing.parameters(), *thing.buffers()]
    elif isinstance(thing, Mapping):
        held = thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        held = thing
    else:
        held = getattr(thing, "__dict__", {}).values()
    for part in list(held):
        yield from _blocks(part, met)

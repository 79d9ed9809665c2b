"""Activations seen a block of rows at a time, so that they may be larger than memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from masil.concepts.checks import check_values
from masil.errors import InputError
from masil.hardware import even_length

BLOCK_ENTRIES = 1 << 22  # of A in one block: 16 MB in single precision, 8,192 rows of 512 features
FEWEST_ROWS = 1 << 12  # in a block that is there only so that threads have as much to do
LINE = 16  # numbers of single precision in a line of the processor's cache
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Blocks(ABC):
    """Activations [n d] that are read by consecutive rows. Whatever can do that may be factorised."""

    features: int  # d
    dtype: torch.dtype

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Tensor:
        """Give the rows start … stop − 1, [stop − start, d]."""


@final
class TensorBlocks(Blocks):
    """Rows of a tensor, on its own device. Its memory may be mapped from a file."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self.features, self.dtype = rows.shape[1], rows.dtype

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Tensor:
        """Give a view of the rows."""
        return self._rows[start:stop]


@final
class ArrayBlocks(Blocks):
    """Rows of a numpy array.

    Those of a memory-mapped array are read from its file and not through the map, whose pages would count as this
    process's memory one after the other until all of the file was there.
    """

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self._rows = rows
        self._file = _place(rows)
        self.features, self.dtype = int(rows.shape[1]), torch.from_numpy(np.empty(0, rows.dtype)).dtype

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Tensor:
        """Give a copy of the rows."""
        if self._file is None:
            return torch.from_numpy(np.array(self._rows[start:stop]))
        name, offset = self._file
        position = offset + start * self.features * self._rows.itemsize
        found = np.fromfile(name, self._rows.dtype, (stop - start) * self.features, offset=position)
        return torch.from_numpy(found.reshape(stop - start, self.features))


def as_blocks(activations: Tensor | np.ndarray[Any, Any] | Blocks) -> Blocks:
    """Take a tensor, a numpy array (mapped or not) or blocks; refuse what is not floating-point [n d]."""
    shape = (len(activations), activations.features) if isinstance(activations, Blocks) else tuple(activations.shape)
    if len(shape) != 2:
        raise InputError(f"Activations must have the shape [n d], but have {list(shape)}.")
    kind = str(activations.dtype).removeprefix("torch.")
    if kind not in {str(known).removeprefix("torch.") for known in FLOATS}:
        raise InputError(f"The activations are {kind}; convert them to float32 or float64.")
    if isinstance(activations, Blocks):
        return activations
    return TensorBlocks(activations.detach()) if isinstance(activations, Tensor) else ArrayBlocks(activations)


def working_dtype(source: Blocks) -> torch.dtype:
    """Half precision is widened; the two others are worked in as they are."""
    return torch.float64 if source.dtype == torch.float64 else torch.float32


def block_rows(features: int) -> int:
    """How many rows are read at once, or some more to fill lines of the cache."""
    return min(1 << 14, max(1 << 8, BLOCK_ENTRIES // max(1, features)))


def block_length(source: Blocks) -> int:
    """How many rows each block has but the last: about as many.

    It is an odd number of lines: the rows of Pᵀ then begin with a line, and do not all begin in the same place of the
    cache, where they would drive each other out.
    """
    rows = even_length(len(source), block_rows(source.features), FEWEST_ROWS)
    return (-(-rows // LINE) | 1) * LINE


def block_starts(source: Blocks) -> range:
    """Where blocks begin."""
    return range(0, len(source), block_length(source))


def read_block(source: Blocks, start: int) -> Tensor:
    """Give the block that begins at this row, in the format that is worked in."""
    return source.read(start, min(start + block_length(source), len(source))).to(working_dtype(source))


def iterate(source: Blocks) -> Iterator[Tensor]:
    """Yield all rows, block after block, in the format that is worked in."""
    return (read_block(source, start) for start in block_starts(source))


def survey(source: Blocks, wanted: Tensor) -> tuple[float, Tensor]:
    """Check all values, and give ‖A‖²_F and the rows at the positions `wanted`, in one pass.

    Args:
        source: the activations.
        wanted: int64 [m], different positions in any order, on the CPU.

    """
    positions, order = wanted.sort()
    kept: list[Tensor] = []
    energy, start = 0.0, 0
    for block in iterate(source):
        check_values("activations", block)
        energy += float(block.square().sum(1).cpu().double().sum())
        first, last = (int(torch.searchsorted(positions, edge)) for edge in (start, start + len(block)))
        kept.append(block[(positions[first:last] - start).to(block.device)])
        start += len(block)
    return energy, torch.cat(kept)[order.argsort().to(kept[0].device)]


def _place(rows: np.ndarray[Any, Any]) -> tuple[str, int] | None:
    """Say in which file, from which byte on, the rows of a memory-mapped array lie one after the other."""
    if not isinstance(rows, np.memmap) or rows.mode == "c" or not rows.flags.c_contiguous:
        return None  # a copy-on-write map may differ from its file
    root: np.ndarray[Any, Any] = rows
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None:
        return None
    # `offset` is that of the whole map; a view begins later by the distance of the two addresses.
    return str(root.filename), root.offset + rows.ctypes.data - root.ctypes.data

"""Images in arrays and in files. Files are decoded on every core (Pillow decodes outside the interpreter lock)."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TypeVar, final

import numpy as np
import torch
from torch import Tensor

from masil.data.decode import read_square
from masil.data.images import Faults, Framing, Images, Rows, frame_pixels
from masil.errors import DataError, InputError
from masil.hardware import usable_cores

T = TypeVar("T")
R = TypeVar("R")

_BATCH = 16  # files a task reads: many enough that small files do not wait for the pool
_THREAD = threading.local()
_KNOWN: dict[tuple[str, int, int], bytes] = {}  # path, size, time of change → sha256 of the content


def array_images(pixels: np.ndarray, labels: Tensor | None = None, name: str = "array") -> Images:
    """Give images of one size that are held in memory as uint8 [n 3 h w]."""
    return Images(ArraySource(pixels, name), labels=labels)


def file_images(root: Path, files: Sequence[str], labels: Tensor | None = None) -> Images:
    """Give the images in the files `root`/`files`[i]."""
    return Images(FileSource(root, files), labels=labels)


@final
class ArraySource:
    """Images of one size, held in memory as uint8 [n 3 h w]."""

    def __init__(self, pixels: np.ndarray, called: str = "array") -> None:
        if pixels.ndim != 4 or pixels.shape[1] != 3 or pixels.dtype != np.uint8:
            raise InputError(f"Images must be uint8 [n 3 h w], but are {pixels.dtype} of shape {pixels.shape}.")
        self.pixels = pixels
        self.called = called

    def __len__(self) -> int:
        return len(self.pixels)

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Take the rows, and frame them if they are not of the size asked for."""
        chosen = torch.from_numpy(self.pixels[rows])
        if chosen.shape[2:] == (framing.crop, framing.crop) and framing.resize == framing.crop:
            return chosen, {}
        if not len(chosen):
            return chosen.new_empty((0, 3, framing.crop, framing.crop)), {}
        return frame_pixels(chosen, framing), {}

    def name(self, row: int) -> str:
        """Name the array and the row."""
        return f"{self.called}[{row}]"

    def fingerprint(self, rows: Rows) -> str:
        """Hash the pixels of these rows."""
        state = hashlib.sha256(str(self.pixels.shape[1:]).encode())
        for start in range(0, len(rows), 4096):
            state.update(self.pixels[rows[start : start + 4096]].tobytes())
        return state.hexdigest()


@final
class FileSource:
    """The files `root`/`files`[i]."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        self.root = Path(root)
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def load(self, rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
        """Decode the files side by side."""
        return decode_rows(lambda row: read_square(self.root / self.files[row], framing), rows, framing)

    def name(self, row: int) -> str:
        """Give the path from the folder of the data set."""
        return self.files[row]

    def fingerprint(self, rows: Rows) -> str:
        """Hash what is in the files, whatever they are called; a file is read once as long as it does not change."""
        paths = [os.path.join(self.root, self.files[row]) for row in rows.tolist()]  # noqa: PTH118  32,000 of them
        return hashlib.sha256(b"".join(in_threads(content_digest, paths))).hexdigest()


def decode_rows(read: Callable[[int], np.ndarray], rows: Rows, framing: Framing) -> tuple[Tensor, Faults]:
    """Read the square [3 crop crop] of each row, on every core; where there is none, it stays black and has a fault."""
    pixels = np.zeros((len(rows), 3, framing.crop, framing.crop), np.uint8)
    faults: Faults = {}

    def fill(position: int) -> None:
        try:
            pixels[position] = read(int(rows[position]))
        except DataError as fault:
            faults[position] = fault

    for _ in in_threads(fill, range(len(rows))):
        pass
    return torch.from_numpy(pixels), faults


def content_digest(path: str, content: bytes | None = None) -> bytes:
    """Give the sha256 of a file, read only if it is new or has changed since; `content` saves the reading."""
    try:
        state = os.stat(path)  # noqa: PTH116  a Path for each of 32,000 files would cost more than the call
        key = (path, state.st_size, state.st_mtime_ns)
        if key not in _KNOWN:
            _KNOWN[key] = hashlib.sha256(Path(path).read_bytes() if content is None else content).digest()
        return _KNOWN[key]
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from error


@contextmanager
def on_this_thread() -> Iterator[None]:
    """Decode on the calling thread inside this block, instead of on a pool of them.

    Used by engine workers, which already run on every core.
    """
    _THREAD.alone = True
    try:
        yield
    finally:
        _THREAD.alone = False


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
    """Map `function` over `items` on every core this process may use, keeping their order."""
    if len(items) <= 1 or getattr(_THREAD, "alone", False):
        return map(function, items)
    return _pooled(function, items)


def _pooled(function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
    cores = usable_cores()
    batch = max(1, min(_BATCH, len(items) // cores))
    batches = [items[start : start + batch] for start in range(0, len(items), batch)]
    pool = ThreadPoolExecutor(cores, thread_name_prefix="decode")
    try:
        yield from chain.from_iterable(pool.map(lambda part: [function(item) for item in part], batches))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

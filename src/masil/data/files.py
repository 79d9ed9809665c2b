"""Images in files, decoded on every core when they are asked for (Pillow decodes outside the interpreter lock)."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from masil.data.decode import read_square
from masil.data.images import Framing, Images, Index, pick
from masil.errors import DataError, InputError
from masil.hardware import usable_cores

T = TypeVar("T")
R = TypeVar("R")

_BATCH = 16  # files a task reads: many enough that small files do not wait for the pool
_THREAD = threading.local()
_KNOWN: dict[tuple[str, int, int], bytes] = {}  # path, size, time of change → sha256 of the content


@final
class FileImages(Images):
    """The files `root`/`files`[i]; `rows` says which of them these are."""

    def __init__(self, root: Path, files: Sequence[str], labels: Tensor, rows: Tensor | None = None) -> None:
        self.root = Path(root)
        self.files = files
        self.rows = torch.arange(len(files)) if rows is None else rows
        self.labels = labels.to(torch.int64)
        if len(self.labels) != len(self.rows):
            raise InputError(f"There are {len(self.rows)} images but {len(self.labels)} labels.")

    def load(self, index: Index, framing: Framing) -> Tensor:
        """Decode the files side by side; the first that cannot be read, in their order, is the one that is named."""
        rows = pick(self.rows, index).tolist()
        pixels = np.empty((len(rows), 3, framing.crop, framing.crop), np.uint8)

        def fill(place: int) -> None:
            path = self.root / self.files[rows[place]]
            pixels[place] = read_square(path, framing)

        for _ in in_threads(fill, range(len(rows))):
            pass
        return torch.from_numpy(pixels)

    def subset(self, index: Index) -> Self:
        """Give a view of the same files."""
        return type(self)(self.root, self.files, pick(self.labels, index), pick(self.rows, index))

    def relabel(self, labels: Tensor) -> Self:
        """Give the same files with other labels."""
        return type(self)(self.root, self.files, labels, self.rows)

    def fingerprint(self) -> str:
        """Hash what is in the files, whatever they are called; a file is read once as long as it does not change."""
        paths = (os.path.join(self.root, self.files[row]) for row in self.rows.tolist())  # noqa: PTH118  32,000 of them
        return hashlib.sha256(b"".join(in_threads(content_digest, list(paths)))).hexdigest()

    def name(self, position: int) -> str:
        """Give the path from the folder of the data set."""
        return self.files[int(self.rows[position])]

    def path(self, position: int) -> Path:
        """Give the whole path of the file."""
        return self.root / self.name(position)


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
    """Let this thread decode by itself what it loads in this block, because others do so beside it."""
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

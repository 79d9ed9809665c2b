"""One process at a time: a lock on a file, which the system releases when its holder ends, however it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from masil.errors import StorageError

PATIENCE = 0.1  # seconds between two tries where the system cannot wait for us

if sys.platform == "win32":
    import msvcrt

    def _acquire(file: IO[bytes]) -> None:
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except OSError:
                time.sleep(PATIENCE)
            else:
                return

    def _release(file: IO[bytes]) -> None:
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _acquire(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _release(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process (or thread) holds the lock `path`, and hold it inside this block."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}).") from error
    with file:
        _acquire(file)
        try:
            yield
        finally:
            _release(file)

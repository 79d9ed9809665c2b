"""A lock on a file: one process or thread at a time. The system releases it when its holder ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from masil.errors import StorageError
from masil.files.atomic import cannot_write


@contextmanager
def locked(lock: Path, *, target: Path | None = None, patience: float = -1) -> Iterator[None]:
    """Hold the file `lock` inside this block; it is made where it is missing, and stays.

    Waits `patience` seconds for another holder, or as long as it takes where negative. `target` is the file that the
    lock guards, which sentences name; `lock` itself if not given.
    """
    from filelock import FileLock, Timeout  # `masil --help` comes by here

    target = target or lock
    holder = FileLock(lock, timeout=patience)
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        holder.acquire()
    except Timeout as error:
        raise StorageError(
            f"Another process is writing {target}, for more than {patience:.0f} s now; wait for it to end, then try "
            "again. Nothing was changed."
        ) from error
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        yield
    finally:
        holder.release()

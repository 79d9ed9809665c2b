"""Files that are written whole or not at all, whenever the process dies; locks, checksums, where caches live."""

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from masil.errors import StorageError


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` to write to; on success it is flushed to disk and takes `target`'s name at once."""
    target = Path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _cannot_write(target, error) from error
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.umask(mask := os.umask(0))
        part.chmod(0o666 & ~mask)
        part.replace(target)
        _flush_folder(target.parent)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        part.unlink(missing_ok=True)


def write_bytes(target: Path, content: bytes) -> None:
    """Write `content` to `target` atomically."""
    with atomic_path(target) as part:
        part.write_bytes(content)


def write_json(target: Path, value: Any) -> None:
    """Write `value` to `target` as indented JSON, atomically."""
    write_bytes(target, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(source: Path) -> Any:
    """Read JSON from `source`, or say in a sentence why it cannot be read."""
    try:
        return json.loads(Path(source).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"There is no file {source}.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StorageError(f"{source} cannot be read as JSON ({error}).") from error


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
        raise _cannot_write(target, error) from error
    try:
        yield
    finally:
        holder.release()


def digest(source: Path, algorithm: str = "sha256") -> str:
    """Give the hexadecimal checksum of a file."""
    with Path(source).open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def cache_folder(*parts: str) -> Path:
    """Give masil's cache folder (`MASIL_CACHE`, else the platform's usual place), or a place inside it."""
    root = os.environ.get("MASIL_CACHE")
    if not root:
        from platformdirs import user_cache_dir  # `masil --help` comes by here

        root = user_cache_dir("masil", appauthor=False)
    return Path(root).expanduser().joinpath(*parts)


def _flush_folder(folder: Path) -> None:
    """Make the new name itself durable; folders cannot be opened for this on Windows."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def why_unwritable(folder: Path) -> str | None:
    """Say why nothing can be written into a folder, which need not be there yet; None where it can."""
    nearest = next((place for place in (folder, *folder.parents) if os.access(place, os.F_OK)), folder)
    if not nearest.is_dir():
        return f"{nearest} is a file and no folder"
    return None if os.access(nearest, os.W_OK | os.X_OK) else f"no permission to write in {nearest}"


def _cannot_write(target: Path, error: OSError) -> StorageError:
    if error.errno == errno.ENOSPC:
        return StorageError(f"The disk is full: {target} was not written, and what was there before is unchanged.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(f"{target} cannot be written: no permission to write in {target.parent}.")
    if isinstance(error, FileExistsError | NotADirectoryError) and (why := why_unwritable(target.parent)):
        return StorageError(f"{target} cannot be written: {why}.")
    return StorageError(f"{target} cannot be written ({error}).")

"""One at a time: whoever reads a model, changes it and writes it back holds it meanwhile, so that no lesson is lost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from masil.errors import StorageError

PATIENCE = 60.0  # seconds to wait for another process
PAUSE = 0.05  # between two tries

if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def editing(path: str | Path, *, new: bool = False, patience: float | None = None) -> Iterator[Path]:
    """Hold the model at `path` against other processes and threads, and yield the file itself, links followed.

    Load the model inside, change it, save it: what others taught before is then in it. A process that dies lets go.
    With `new`, there need not be a model yet.
    """
    path = Path(path)
    patience = PATIENCE if patience is None else patience
    if path.is_dir():
        raise StorageError(f"{path} is a folder; a model is one file, for instance {path / 'model.masil'}.")
    model = path.resolve()
    if not new and not model.exists():
        raise StorageError(f"There is no model at {path}.")
    place = model.with_name(f".{model.name}.lock")
    deadline = time.monotonic() + patience
    while (file := _hold(place, model)) is None:
        if time.monotonic() > deadline:
            raise StorageError(
                f"Another process is writing {path}, for more than {patience:.0f} s now; wait for it to end, then try "
                "again. Nothing was changed."
            )
        time.sleep(PAUSE)
    with file:
        try:
            yield model
        finally:
            with suppress(OSError):  # where an open file cannot be removed, it stays, and does no harm
                place.unlink()


def _hold(place: Path, model: Path) -> IO[bytes] | None:
    """Lock the file `place`, or give None where another holds it."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        file = place.open("ab")
    except OSError as error:
        raise StorageError(
            f"{model} cannot be written: no permission to write in {model.parent}."
            if isinstance(error, PermissionError)
            else f"{model} cannot be written ({error.strerror})."
        ) from error
    try:
        _try_lock(file)
        # Its last holder may have removed it between our opening and our locking: then it guards nothing any more.
        if os.path.samestat(os.fstat(file.fileno()), place.stat()):
            return file
    except (BlockingIOError, PermissionError, FileNotFoundError):  # held, held on Windows, removed
        pass
    except OSError as error:
        file.close()
        raise StorageError(f"{model} cannot be held against other processes ({error.strerror}).") from error
    file.close()
    return None

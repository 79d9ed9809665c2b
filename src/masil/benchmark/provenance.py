"""Where a figure comes from and what it cost: code, versions, machine and command, time, memory and kept bytes."""

import hashlib
import inspect
import platform
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

import masil
from masil.hardware import cpu_model, memory, resolve_device, usable_cores
from masil.storage import commit, commit_with

# Rooms that show figures and make none: a change there makes no cell out of date.
SHOWING = ("cli", "report", "studio")


@final
@dataclass(frozen=True)
class Stamp:
    """When, where and by which code a cell was played, and what it took; made by the process that played it."""

    commit: str | None  # of the checkout that masil ran from; None where it was installed
    clean: bool | None  # whether no file of the package differed from that commit; None without a commit
    command: str
    versions: dict[str, str]  # masil, python, torch, numpy
    machine: dict[str, Any]
    started: str  # ISO 8601, UTC
    seconds: float  # the base session's training and the making of activations not counted
    model_bytes: int  # what the method keeps at the end
    peak_bytes: int  # the most that its process held; 0 where the system does not say
    own_commit: str | None = None  # that holds the file of a method that is not masil's; None where none does


def make_stamp(
    command: str, device: str, method: object, *, started: datetime, seconds: float, own: Path | None = None
) -> Stamp:
    """Stamp a cell that this process has just played with a method, which may come from a file of somebody's `own`."""
    commit_, clean = commit()
    versions = {"masil": masil.__version__, "python": platform.python_version()}
    return Stamp(
        commit=commit_,
        clean=clean,
        command=command,
        versions={**versions, "torch": torch.__version__, "numpy": np.__version__},
        machine={
            "system": f"{platform.system()} {platform.machine()}",
            "cpu": cpu_model(),
            "cores": usable_cores(),
            "memory_bytes": memory(),
            "device": str(resolve_device(device)),
        },
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        model_bytes=model_bytes(method),
        peak_bytes=peak_bytes(),
        own_commit=None if own is None else commit_with(own),
    )


@cache
def package_code() -> str:
    """Give the sha256 of every source file that a figure may follow from, as it was when this process first asked."""
    home = Path(masil.__file__).parent
    state = hashlib.sha256()
    for file in sorted(home.rglob("*")):
        name = file.relative_to(home)
        if file.is_file() and "__pycache__" not in name.parts and name.parts[0] not in SHOWING:
            state.update(f"{name.as_posix()}\0".encode())
            state.update(file.read_bytes())
    return state.hexdigest()


def own_source(method: Callable[..., Any]) -> Path | None:
    """Give the file of a method that is not the package's; None where it is, or has no file."""
    method = getattr(method, "of", method)  # which is balanced
    with suppress(TypeError, OSError):  # of a built-in, of one that came without its file to another process
        source = inspect.getsourcefile(method)
        if source and method.__module__.partition(".")[0] != "masil":
            return Path(source)
    return None


def own_code(method: Callable[..., Any]) -> str | None:
    """Give the sha256 of `own_source`."""
    source = own_source(method)
    return hashlib.sha256(source.read_bytes()).hexdigest() if source is not None and source.is_file() else None


def command() -> str:
    """Give the command line of this process, to be run again."""
    program = Path(sys.argv[0])
    name = "masil" if program.name in ("masil", "__main__.py") else program.name
    return shlex.join([name, *sys.argv[1:]])


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


def _blocks(value: object, met: set[int]) -> Iterator[Tensor | np.ndarray]:
    """Walk through whatever an object holds, to the tensors and arrays in it."""
    if id(value) in met or isinstance(value, str | bytes | int | float | type | ModuleType | None):
        return
    met.add(id(value))
    if isinstance(value, Tensor | np.ndarray):
        yield value
        return
    if isinstance(value, nn.Module):
        parts: Iterable[object] = [*value.parameters(), *value.buffers()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    else:
        parts = (value if isinstance(value, Mapping) else getattr(value, "__dict__", {})).values()
    for part in list(parts):
        yield from _blocks(part, met)

"""What must be known of a run to do it again: versions, commit, machine, command; and what it took."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import which
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import masil
from masil.hardware import cpu_model, memory, resolve_device, usable_cores


def versions() -> dict[str, str]:
    """Give the versions that figures may depend on."""
    return {
        "masil": masil.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def commit() -> str | None:
    """Give the commit that masil is running from, with "-dirty" if files differ; None where it was installed."""
    home = Path(masil.__file__).parent
    git = which("git")
    if git is None:
        return None

    def ask(*question: str) -> str:
        answer = subprocess.run(  # noqa: S603  git, on our own folder
            [git, "-C", str(home), *question], capture_output=True, text=True, check=True, timeout=30
        )
        return answer.stdout.strip()

    with suppress(subprocess.SubprocessError, OSError):
        ask("ls-files", "--error-unmatch", "__init__.py")  # else the folder lies in a repository of someone else's
        return ask("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    return None


def machine(device: str) -> dict[str, Any]:
    """Say what the run was on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": memory(),
        "device": str(resolve_device(device)),
    }


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
    found: dict[tuple[int, int], int] = {}
    for block in _blocks(method, set()):
        place = block.data_ptr() if isinstance(block, Tensor) else block.ctypes.data
        found[place, block.nbytes] = block.nbytes
    return sum(found.values())


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

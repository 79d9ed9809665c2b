"""Where a figure comes from: the code, versions, machine and command that made it."""

from __future__ import annotations

import hashlib
import inspect
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any, final

import numpy as np
import torch

import masil
from masil.hardware import cpu_model, memory, resolve_device, usable_cores

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


def versions() -> dict[str, str]:
    """Give the versions that figures may depend on."""
    return {
        "masil": masil.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def commit() -> tuple[str | None, bool | None]:
    """Give the commit that masil is running from, and whether no file of the package differs from it."""
    home = Path(masil.__file__).parent
    git = which("git")
    if git is None:
        return None, None

    def ask(*question: str) -> str:
        answer = subprocess.run(  # noqa: S603  git, on our own folder
            [git, "-C", str(home), *question], capture_output=True, text=True, check=True, timeout=30
        )
        return answer.stdout.strip()

    with suppress(subprocess.SubprocessError, OSError):
        ask("ls-files", "--error-unmatch", "__init__.py")  # else the folder lies in a repository of someone else's
        return ask("rev-parse", "HEAD"), not ask("status", "--porcelain", "--", ".")
    return None, None


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


def code_of(method: Callable[..., Any]) -> str:
    """Give the checksum of the code that a method's figures follow from: the package's, and its own where it is not."""
    if method.__module__.partition(".")[0] == "masil":
        return package_code()
    with suppress(OSError, TypeError):
        source = inspect.getsourcefile(method)
        own = Path(source).read_bytes() if source else inspect.getsource(method).encode()
        return hashlib.sha256(package_code().encode() + own).hexdigest()
    return package_code()  # typed into an interpreter: there is no source to be read


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

"""Where to compute and how: the device by name, the precision and the threads that this machine was found good for."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from masil.errors import DeviceError, InputError, suggest
from masil.hardware.answers import known
from masil.hardware.child import ISA_VARIABLES
from masil.hardware.hardware import DEVICES, Hardware
from masil.hardware.probe import probe
from masil.hardware.process import precision, prepare, setting

if TYPE_CHECKING:
    import torch


def resolve_device(name: str = "auto") -> "torch.device":
    """Give the device called "auto" (the fastest that works), "cpu", "cuda", "cuda:1" or "mps", if it is there."""
    kind, colon, index = name.strip().lower().partition(":")
    prepare()
    hardware = probe() if kind == "auto" else known()
    import torch  # after the probe, so that the instruction set it chose can still take effect

    if hardware is not None:
        _refuse_deadly(hardware)
    if kind == "auto" and not colon and hardware is not None:
        return torch.device(hardware.device if _count(hardware.device) else "cpu")
    if kind not in DEVICES or (colon and not (kind == "cuda" and index.isdecimal())):
        # 'gpu' is nearer to 'cpu' by its letters, but not by its meaning.
        hint = suggest("cuda" if "gpu" in kind else kind, ("auto", *DEVICES))
        raise DeviceError(f"There is no device called '{name}'; {hint}")
    if _count(kind) == 0:
        raise DeviceError(
            f"The device '{name}' was asked for, but torch {torch.__version__} finds none here; "
            f"available: {', '.join(device for device in DEVICES if _count(device))}. 'auto' takes the fastest."
        )
    if colon and int(index) >= _count(kind):
        raise DeviceError(
            f"The device '{name}' was asked for, but torch {torch.__version__} finds {_count(kind)} of this kind, "
            f"counted from 0: did you mean 'cuda:{_count(kind) - 1}'?"
        )
    return torch.device(f"{kind}:{int(index)}" if colon else kind)


def autocast(device: "torch.device | str") -> AbstractContextManager[Any]:
    """Compute in bfloat16 inside this block if that was found right and faster on this device, else in float32."""
    import torch

    kind = torch.device(device).type
    if precision(probe(), kind) == "bfloat16":
        return torch.autocast(kind, dtype=torch.bfloat16)
    return nullcontext()


def set_threads(threads: int | None = None) -> int:
    """Let torch use this many threads, by default as many as were found fastest, and give the number in use.

    Where the user has set OMP_NUM_THREADS, the default is to leave it at that.
    """
    import torch

    if threads is not None and threads < 1:
        raise InputError(f"torch cannot work with {threads} threads; give at least 1.")
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        threads = probe().threads
    if threads is not None:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def _count(kind: str) -> int:
    import torch

    match kind:
        case "cuda":
            return torch.cuda.device_count() if torch.cuda.is_available() else 0
        case "mps":
            return int(torch.backends.mps.is_available())
        case _:
            return 1


def _refuse_deadly(hardware: Hardware) -> None:
    """Raise, where the next convolution would kill the process even in float32."""
    if hardware.device not in hardware.precisions:
        tried, ended = next(iter(hardware.failures.items()))
        raise DeviceError(
            f"torch {hardware.torch} does not work on this machine: {tried} {ended}. "
            "Another build of torch may; after a change, `masil doctor --refresh` tries again."
        )
    survives_plain = "cpu float32 training images/s" in hardware.measurements
    # Our own limit may come after a network that somebody else ran; but without it, that one would have been the end.
    if hardware.onednn_isa is not None and not survives_plain and setting() != hardware.onednn_isa:
        raise DeviceError(
            f"This machine survives torch only with {ISA_VARIABLES[0]}={hardware.onednn_isa}, but '{setting()}' is "
            "set. Leave the variable out, or set it to that, and start again."
        )

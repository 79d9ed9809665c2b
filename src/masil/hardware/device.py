"""What of the machine's answer holds in this process: oneDNN's instruction set, device, precision, threads.

oneDNN reads ONEDNN_MAX_CPU_ISA when it is first used, not when torch is imported: setting it after `import torch` and
before the first convolution takes effect; after a convolution, or even a question such as whether bfloat16 is
supported, it does not (seen with torch 2.13, oneDNN 3.12, by the instruction set that ONEDNN_VERBOSE=1 prints).
torch does not tell whether oneDNN has been used. So a limit counts as in force only if it was there before torch;
otherwise bfloat16, which may be deadly without it, is not used in this process.

A library does not change its host's environment when it is imported. So the limit is set by the command line before
anything else, and elsewhere when masil makes its first backbone or looks for a device: before its first network runs.
Whoever wants it earlier, before torch is imported, calls `prepare` there.
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, get_args

from masil.errors import DeviceError, InputError, StorageError, suggest
from masil.hardware.decide import COMMAND, ISA_VARIABLES, TRIAL_MARK, Device, Hardware, Precision, decide, run_trial
from masil.hardware.machine import machine_key
from masil.storage import cache_folder, from_json, read_json, to_json, write_json

if TYPE_CHECKING:
    import torch

DEVICES = get_args(Device)
_answers: Final[dict[Path, Hardware]] = {}  # so that a cache that cannot be written costs one probe a process, not many
_limits: Final[set[str | None]] = set()  # under which oneDNN may be working in this process; None = no limit


def probe(refresh: bool = False, *, command: Sequence[str] = COMMAND) -> Hardware:
    """Say what works on this machine and what is fastest, by trying it in child processes the first time it is asked.

    A child that crashes, hangs or raises is an answer. `refresh` tries again even if the answer is known. torch is not
    imported in this process.
    """
    hardware = None if refresh else _known()
    if hardware is None:
        from masil.progress import bar

        with bar("Trying out what this machine can do (once)", None):
            hardware = decide(partial(run_trial, command=command))
        remember(hardware)
    _limit(hardware)
    return hardware


def remember(hardware: Hardware) -> None:
    """Keep an answer: in this process always, for later ones if it is settled and the cache can be written."""
    _answers[_file()] = hardware
    if hardware.settled:
        with suppress(StorageError):
            write_json(_file(), to_json(hardware))


def _known() -> Hardware | None:
    """Give the answer if there is one already; a file that is damaged or cannot be read is none."""
    file = _file()
    if file not in _answers:
        with suppress(StorageError, InputError):
            hardware = from_json(Hardware, read_json(file), "hardware answer")
            if hardware.key == machine_key():
                _answers[file] = hardware
    return _answers.get(file)


def _file() -> Path:
    try:
        folder = cache_folder("hardware")
    except RuntimeError:  # a user without a home, as in some containers: a place where nothing can be read or written
        folder = Path(os.devnull)
    return folder / f"{machine_key()}.json"


def prepare() -> None:
    """Limit oneDNN's instruction set as the probe found right, if it has been asked before. Cheap; never raises.

    The limit is an environment variable of this process and its children. The command line calls this first, and so
    does the first backbone that is made.
    """
    with suppress(Exception):
        if TRIAL_MARK not in os.environ:
            note_limit()
            if hardware := _known():
                _limit(hardware)


def _limit(hardware: Hardware) -> None:
    """Limit oneDNN's instruction set for this process and its children, unless the user has chosen one."""
    note_limit()
    if hardware.onednn_isa is not None and _limit_now() is None:
        os.environ[ISA_VARIABLES[0]] = hardware.onednn_isa
        note_limit()


def note_limit() -> None:
    """Note oneDNN's limit of this moment, and change nothing; before torch is imported, it replaces what was noted."""
    if "torch" not in sys.modules:
        _limits.clear()
    elif not _limits:  # torch was there first: what held then is unknown, and no limit is the worst case
        _limits.add(None)
    _limits.add(_limit_now())


def _limit_now() -> str | None:
    """Give oneDNN's limit as the environment has it now; None where it has none."""
    return next((os.environ[name] for name in ISA_VARIABLES if name in os.environ), None)


def precision(hardware: Hardware, device: str) -> Precision:
    """Give the precision to use on a device in this process.

    On the processor it is bfloat16 only if oneDNN surely works under the instruction set that the probe chose.
    """
    note_limit()
    in_force = device != "cpu" or _limits == {hardware.onednn_isa}
    return hardware.precisions.get(cast("Device", device), "float32") if in_force else "float32"


def resolve_device(name: str = "auto") -> "torch.device":
    """Give the device called "auto" (the fastest that works), "cpu", "cuda", "cuda:1" or "mps", if it is there."""
    kind, colon, index = name.strip().lower().partition(":")
    prepare()
    hardware = probe() if kind == "auto" else _known()
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


def import_torch() -> None:
    """Import torch, unless it is there already, and spare it every search for garbage: now, later and at the end.

    Those searches take a fifth of the time of a command that answers once. What is alive now, torch or not, is never
    freed as part of a cycle afterwards, so this is for programs, not for libraries.
    """
    if "torch" in sys.modules:
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _count(kind: str) -> int:
    import torch

    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    return int(kind == "cpu" or torch.backends.mps.is_available())


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
    if hardware.onednn_isa is not None and not survives_plain and _limit_now() != hardware.onednn_isa:
        raise DeviceError(
            f"This machine survives torch only with {ISA_VARIABLES[0]}={hardware.onednn_isa}, but '{_limit_now()}' is "
            "set. Leave the variable out, or set it to that, and start again."
        )

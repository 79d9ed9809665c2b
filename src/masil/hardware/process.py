"""What of the probe's answer holds in this process: oneDNN's instruction set cannot be changed once it is in use.

oneDNN reads ONEDNN_MAX_CPU_ISA when it is first used, not when torch is imported: setting it after `import torch` and
before the first convolution takes effect; after a convolution, or even a question such as whether bfloat16 is
supported, it does not (seen with torch 2.13, oneDNN 3.12, by the instruction set that ONEDNN_VERBOSE=1 prints).
torch does not tell whether oneDNN has been used. So a setting counts as in force only if it was there before torch;
otherwise bfloat16, which may be deadly without it, is not used in this process.

A library does not change its host's environment when it is imported. So the limit is set by the command line before
anything else, and elsewhere when masil makes its first backbone or looks for a device: before its first network runs.
Whoever wants it earlier, before torch is imported, calls `prepare` there.
"""

import os
import sys
from contextlib import suppress
from typing import Final

from masil.hardware.answers import known
from masil.hardware.child import ISA_VARIABLES, TRIAL_MARK
from masil.hardware.hardware import Hardware

# The settings oneDNN may be working under in this process; None = no limit.
_settings: Final[set[str | None]] = set()


def prepare() -> None:
    """Limit oneDNN's instruction set as the probe found right, if it has been asked before. Cheap; never raises.

    The limit is an environment variable of this process and its children. The command line calls this first, and so
    does the first backbone that is made.
    """
    with suppress(Exception):
        if TRIAL_MARK in os.environ:
            return
        note_setting()
        if hardware := known():
            adopt(hardware)


def adopt(hardware: Hardware) -> None:
    """Limit oneDNN's instruction set for this process and its children, unless the user has chosen one."""
    note_setting()
    if hardware.onednn_isa is not None and setting() is None:
        os.environ[ISA_VARIABLES[0]] = hardware.onednn_isa
        note_setting()


def precision(hardware: Hardware, device: str) -> str:
    """Give the precision to use on a device in this process: bfloat16 on the processor only if `in_force`."""
    chosen = hardware.precisions.get(device, "float32")
    return chosen if device != "cpu" or in_force(hardware) else "float32"


def in_force(hardware: Hardware) -> bool:
    """Say whether oneDNN surely works under the instruction set that the probe chose."""
    note_setting()
    return _settings == {hardware.onednn_isa}


def setting() -> str | None:
    """Give oneDNN's limit as the environment has it now; None where it has none."""
    return next((os.environ[name] for name in ISA_VARIABLES if name in os.environ), None)


def note_setting() -> None:
    """Note oneDNN's limit of this moment, and change nothing; before torch is imported, it replaces what was noted."""
    if "torch" not in sys.modules:
        _settings.clear()
    elif not _settings:  # torch was there first: what held then is unknown, and no limit is the worst case
        _settings.add(None)
    _settings.add(setting())

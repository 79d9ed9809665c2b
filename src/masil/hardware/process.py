"""What of the probe's answer holds in this process: oneDNN's instruction set cannot be changed once it is in use.

oneDNN reads ONEDNN_MAX_CPU_ISA when it is first used, not when torch is imported: setting it after `import torch` and
before the first convolution takes effect; after a convolution, or even a question such as whether bfloat16 is
supported, it does not (seen with torch 2.13, oneDNN 3.12, by the instruction set that ONEDNN_VERBOSE=1 prints).
torch does not tell whether oneDNN has been used. So a setting counts as in force only if it was there before torch;
otherwise bfloat16, which may be deadly without it, is not used in this process.
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
    """Limit oneDNN's instruction set as the probe found right, if it has been asked before. Cheap; never raises."""
    with suppress(Exception):
        if TRIAL_MARK in os.environ:
            return
        _look()
        if hardware := known():
            adopt(hardware)


def adopt(hardware: Hardware) -> None:
    """Limit oneDNN's instruction set for this process and its children, unless the user has chosen one."""
    _look()
    if hardware.onednn_isa is not None and not any(name in os.environ for name in ISA_VARIABLES):
        os.environ[ISA_VARIABLES[0]] = hardware.onednn_isa
        _look()


def precision(hardware: Hardware, device: str) -> str:
    """Give the precision to use on a device in this process: bfloat16 on the processor only if `in_force`."""
    chosen = hardware.precisions.get(device, "float32")
    return chosen if device != "cpu" or in_force(hardware) else "float32"


def in_force(hardware: Hardware) -> bool:
    """Say whether oneDNN surely works under the instruction set that the probe chose."""
    _look()
    return _settings == {hardware.onednn_isa}


def _look() -> None:
    """Note the setting of this moment; before torch is imported, it replaces what was noted."""
    current = next((os.environ[name] for name in ISA_VARIABLES if name in os.environ), None)
    if "torch" not in sys.modules:
        _settings.clear()
    elif not _settings:  # torch was there first: what held then is unknown, and no limit is the worst case
        _settings.add(None)
    _settings.add(current)

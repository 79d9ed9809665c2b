"""Which device, precision, instruction set, threads and engine really work here, and which is fastest: by trying."""

from masil.hardware.device import autocast, resolve_device, set_threads
from masil.hardware.hardware import Hardware
from masil.hardware.machine import cpu_model, memory, torch_build, torch_version, usable_cores
from masil.hardware.probe import compile_pays, probe
from masil.hardware.process import note_setting, precision, prepare

__all__ = [
    "Hardware",
    "autocast",
    "compile_pays",
    "cpu_model",
    "memory",
    "note_setting",
    "precision",
    "prepare",
    "probe",
    "resolve_device",
    "set_threads",
    "torch_build",
    "torch_version",
    "usable_cores",
]

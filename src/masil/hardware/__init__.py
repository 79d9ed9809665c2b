"""Which device, precision, instruction set, threads and engine really work here, and which is fastest: by trying."""

from masil.hardware.device import autocast, resolve_device, set_threads
from masil.hardware.hardware import Hardware
from masil.hardware.machine import cpu_model, memory, torch_version, usable_cores
from masil.hardware.probe import compile_pays, probe
from masil.hardware.process import precision, prepare

__all__ = [
    "Hardware",
    "autocast",
    "compile_pays",
    "cpu_model",
    "memory",
    "precision",
    "prepare",
    "probe",
    "resolve_device",
    "set_threads",
    "torch_version",
    "usable_cores",
]

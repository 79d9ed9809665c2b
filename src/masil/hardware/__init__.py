"""Which device, precision, instruction set and threads really work here, and which are fastest: found by trying."""

from masil.hardware.compile import compile_pays
from masil.hardware.decide import Hardware
from masil.hardware.device import (
    note_limit,
    precision,
    prepare,
    probe,
    remember,
    resolve_device,
    set_threads,
    time_in_turn,
)
from masil.hardware.machine import cpu_model, machine_key, memory, torch_build, torch_version, usable_cores

"""Which device, precision, instruction set and threads really work here, and which are fastest: found by trying."""

from masil.hardware.decide import Hardware
from masil.hardware.device import import_torch, note_limit, precision, prepare, probe, remember, resolve_device
from masil.hardware.machine import cpu_model, machine_key, memory, torch_build, torch_version, usable_cores
from masil.hardware.threads import best_seconds, even_length, one_thread, set_threads, share_out, time_in_turn

"""Whether `torch.compile` pays, tried on a small network. Once the trainer times its own steps, this file goes.

With it go `compile_pays` in the room's `__init__`, `extra` of `run_trial` and `compiled` of `training_step`.
"""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from masil.errors import StorageError
from masil.files import Parent, cache_folder, read_json, write_json
from masil.hardware.decide import MARGIN, START, run_trial
from masil.hardware.device import probe
from masil.hardware.machine import machine_key

COMMAND = (sys.executable or "python", "-c", "from masil.hardware.compile import main; main()")
COMPILE_LIMIT = 120.0  # seconds; the C++ compiler takes its time


def compile_pays(device: str | None = None, *, command: Sequence[str] = COMMAND) -> bool:
    """Say whether `torch.compile` works and makes training clearly faster on a device, by default the fastest.

    The first answer takes up to two minutes, so only those ask who have longer work before them. Only the fastest
    device is tried, and only if it works: for others, the answer is no.
    """
    hardware = probe()
    if device not in (None, hardware.device) or hardware.device not in hardware.precisions or not hardware.settled:
        return False
    file = cache_folder("hardware", f"{machine_key()}-compile.json")
    with suppress(StorageError):
        return bool(read_json(file))
    from masil.progress import bar

    # A folder of its own: what an earlier run compiled must not shorten this one, nor its locks outlive it.
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with bar("Trying out torch.compile (once, up to two minutes)", None), folder as cache:
        extra = {"TORCHINDUCTOR_CACHE_DIR": cache}
        arguments = [hardware.device, hardware.precision]
        outcome = run_trial(arguments, hardware.onednn_isa, command, limit=COMPILE_LIMIT, extra=extra)
    eager, compiled = (outcome.number(stage, "ms") for stage in ("eager step", "compiled step"))
    pays = eager is not None and compiled is not None and compiled * MARGIN <= eager
    with suppress(StorageError):
        write_json(file, pays)
    return pays


def main() -> None:
    """Be the child: time one training step eager and compiled."""
    import torch

    from masil.hardware.trials import attempt, best_seconds, one_thread_if_busy, training_step

    say = Parent().send
    device, dtype = torch.device(sys.argv[1]), getattr(torch, sys.argv[2])
    say({"stage": START, "torch": torch.__version__})
    one_thread_if_busy()

    def milliseconds(compiled: bool) -> dict[str, Any]:
        step, _ = training_step(device, dtype, compiled=compiled)
        step()
        return {"ms": 1e3 * best_seconds(step, device, budget=1.0)}

    attempt("eager step", lambda: milliseconds(compiled=False), say)
    attempt("compiled step", lambda: milliseconds(compiled=True), say)
    say({"done": True})

"""Ask the machine once: the probe, and the slow question whether `torch.compile` pays."""

import tempfile
from collections.abc import Sequence

from masil.hardware.answers import keep, known
from masil.hardware.child import COMMAND, Outcome, run
from masil.hardware.decide import Ask, decide, decide_compile
from masil.hardware.hardware import Hardware
from masil.hardware.process import adopt

COMPILE_LIMIT = 120.0  # seconds; the C++ compiler takes its time


def probe(refresh: bool = False, *, command: Sequence[str] = COMMAND) -> Hardware:
    """Say what works on this machine and what is fastest, by trying it in child processes the first time it is asked.

    A child that crashes, hangs or raises is an answer. `refresh` tries again even if the answer is known, and forgets
    what was known of `torch.compile`. torch is not imported in this process.
    """
    hardware = None if refresh else known()
    if hardware is None:
        from masil.progress import bar

        with bar("Trying out what this machine can do (once)", None):
            hardware = decide(lambda arguments, isa: run(arguments, isa, command))
        keep(hardware)
    adopt(hardware)
    return hardware


def compile_pays(device: str | None = None, *, command: Sequence[str] = COMMAND) -> bool:
    """Say whether `torch.compile` works and makes training clearly faster on a device, by default the fastest.

    The first answer takes up to two minutes, so only those ask who have longer work before them. Only the fastest
    device is tried, and only if it works: for others, the answer is no.
    """
    hardware = probe(command=command)
    if device not in (None, hardware.device) or hardware.device not in hardware.precisions or not hardware.settled:
        return False
    if hardware.compile is None:
        from masil.progress import bar

        with bar("Trying out torch.compile (once, up to two minutes)", None):
            hardware = decide_compile(hardware, _ask_compiler(command))
        keep(hardware)
    return bool(hardware.compile)


def _ask_compiler(command: Sequence[str]) -> Ask:
    def ask(arguments: list[str], isa: str | None) -> Outcome:
        # A folder of its own: what an earlier run compiled must not shorten this one, nor its locks outlive it.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            return run(arguments, isa, command, limit=COMPILE_LIMIT, extra={"TORCHINDUCTOR_CACHE_DIR": folder})

    return ask

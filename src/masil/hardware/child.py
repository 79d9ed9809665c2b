"""A trial runs in a child process: whatever becomes of the child is an answer, and never this process's end."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, final

COMMAND = (sys.executable or "python", "-m", "masil.hardware.trial")
START = "starting torch"  # the stage before the first one the child announces
START_LIMIT = 120.0  # seconds; importing torch from a cold network disk is slow
STAGE_LIMIT = 30.0  # seconds for each further stage; on an idle machine it takes a fraction of one

TRIAL_MARK = "MASIL_TRIAL"  # tells `prepare` in the child to leave the environment as the parent made it
ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # oneDNN reads both names, the first one first
# The answer is about the machine, so the user's own limits are not passed on to trials.
_NOT_PASSED_ON = (*ISA_VARIABLES, "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Figures = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Outcome:
    """What a trial found until it ended, and how those stages ended that found nothing."""

    found: Mapping[str, Figures]
    failures: Mapping[str, str]
    conclusive: bool = True  # False if it never started or ran out of time: that may be no fault of the hardware


def run(
    arguments: Sequence[str], isa: str | None = None, command: Sequence[str] = COMMAND, *,
    limit: float = STAGE_LIMIT, start_limit: float = START_LIMIT, extra: Mapping[str, str] | None = None,
) -> Outcome:  # fmt: skip
    """Run one trial under the oneDNN instruction set `isa` (None: as the machine is) and collect its answers.

    The child writes JSON lines: {"begin": stage}; then {"stage": stage, …} with figures, or with an "error"; at the end
    {"done": true}. Anything else on its standard output is ignored. The stage begun last is the one that failed if the
    child dies, takes more than `limit` seconds over it, or leaves without being done.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    environment |= {TRIAL_MARK: "1", "PYTHONUNBUFFERED": "1", **(extra or {})}
    if isa is not None:
        environment[ISA_VARIABLES[0]] = isa
    with tempfile.TemporaryFile() as complaints:
        try:
            child = subprocess.Popen(  # noqa: S603  the command is ours
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints,
                env=environment, start_new_session=True, text=True, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except OSError as error:
            return Outcome({}, {START: f"could not be started ({error})"}, conclusive=False)
        try:
            return _listen(child, complaints, limit, start_limit)
        finally:
            _end(child)


def _listen(child: "subprocess.Popen[str]", complaints: IO[bytes], limit: float, start_limit: float) -> Outcome:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(child.stdout, lines), daemon=True).start()
    found: dict[str, Figures] = {}
    failures: dict[str, str] = {}
    stage, patience = START, start_limit
    begun = time.monotonic()
    while True:
        grace = 2.0  # seconds; a child that ends closes its output a moment before
        try:
            line = lines.get(timeout=max(0.0, begun + patience - time.monotonic()))
        except queue.Empty:
            line, grace = None, 0.0
        if line is None:  # the child closed its output, or took too long
            failures[stage] = _how_it_ended(child, complaints, grace) or f"gave no answer within {patience:g} s"
            conclusive = child.returncode is not None and (stage != START or child.returncode < 0)
            return Outcome(found, failures, conclusive)
        match _parse(line):
            case {"begin": str(stage)}:
                begun, patience = time.monotonic(), limit
            case {"stage": str(named), "error": str(sentence)}:
                failures[named] = sentence
            case {"stage": str(named)} as figures:
                found[named] = figures
            case {"done": True}:
                return Outcome(found, failures)


def _pass_on(source: IO[str], lines: "queue.SimpleQueue[str | None]") -> None:
    with suppress(OSError, ValueError), source:
        for line in source:
            lines.put(line)
    lines.put(None)


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _end(child: "subprocess.Popen[str]") -> None:
    """End the child and, where the system knows process groups, the compilers it may have started."""
    if child.poll() is None:
        with suppress(OSError):
            if os.name == "posix":
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
        child.wait()


def _how_it_ended(child: "subprocess.Popen[str]", complaints: IO[bytes], grace: float) -> str | None:
    """Say how a child ended ("killed by SIGILL (illegal instruction)"), or nothing if it has not within `grace` s."""
    try:
        code = child.wait(timeout=grace)
    except subprocess.TimeoutExpired:
        return None
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name} ({(signal.strsignal(-code) or 'unknown').lower()})"
        return f"killed by signal {-code}"
    if code & 0xFFFFFFFF == 0xC000001D:  # Windows: STATUS_ILLEGAL_INSTRUCTION
        return "killed by an illegal instruction (status 0xC000001D)"
    if code & 0xFFFFFFFF >= 0xC0000000:
        return f"crashed (status 0x{code & 0xFFFFFFFF:X})"
    complaints.seek(0)
    last = complaints.read().decode(errors="replace").strip().rpartition("\n")[2].strip()
    return f"ended with code {code} before it was done" + (f": {last[:200]}" if last else "")

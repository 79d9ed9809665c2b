"""Try this machine in child processes, and decide: of all that survives with right numbers, the fastest is taken."""

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, final, get_args

from masil.errors import InputError
from masil.hardware.machine import BUSY, load, machine_key, torch_version, usable_cores
from masil.storage import Child

Device = Literal["cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]
Isa = Literal["AVX512_CORE_FP16", "AVX512_CORE", "AVX2"]  # oneDNN's instruction sets from most to least
STAGES = ("matrix product", "convolution", "training")
ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # oneDNN reads both names, the first one first
LOAD = "load per core before the trials"  # the name of a measurement
MARGIN = 1.1  # what costs accuracy or instructions must be faster by this factor to be chosen

COMMAND = (sys.executable or "python", "-m", "masil.hardware.trials")
START = "starting torch"  # the stage before the first one that the child announces
START_LIMIT = 120.0  # seconds; importing torch from a cold network disk is slow
STAGE_LIMIT = 30.0  # seconds for each further stage; on an idle machine it takes a fraction of one
TRIAL_MARK = "MASIL_TRIAL"  # tells `prepare` in the child to leave the environment as the parent made it
# The answer is about the machine, so the user's own limits are not passed on to trials.
_NOT_PASSED_ON = (*ISA_VARIABLES, "OMP_NUM_THREADS", "MKL_NUM_THREADS")

# Try a device under a oneDNN instruction set or, for None, as the machine is.
Try = Callable[[str, str | None], "Outcome"]


@final
@dataclass(frozen=True)
class Hardware:
    """What really works on this machine, and which of it is fastest."""

    device: Device  # the fastest that survived
    precisions: Mapping[Device, Precision]  # the fastest that trains rightly; a device that failed is not in it
    onednn_isa: Isa | None = None  # ONEDNN_MAX_CPU_ISA under which the processor survives; None = leave alone
    threads: int = 1
    settled: bool = True  # False: not even float32 could be tried to its end, so it is assumed and will be tried again
    measurements: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)  # what was tried -> how it ended
    torch: str = field(default_factory=torch_version)
    key: str = field(default_factory=machine_key)
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise InputError(f"'threads' cannot be {self.threads}.")

    @property
    def precision(self) -> Precision:
        """The fastest precision that trains rightly on `device`."""
        return self.precisions.get(self.device, "float32")

    @property
    def disturbed(self) -> bool:
        """Whether other work went on during the trials, so that they measured on one thread."""
        return self.measurements.get(LOAD, 0.0) > BUSY


@final
@dataclass(frozen=True)
class Outcome:
    """What a trial measured until it ended, and how those stages ended that measured nothing."""

    figures: Mapping[str, Mapping[str, Any]]  # by stage
    failures: Mapping[str, str]
    conclusive: bool = True  # False if it never started or ran out of time: that may be no fault of the hardware

    def number(self, stage: str, unit: str) -> float | None:
        """Give a figure if it is one: a child may say anything."""
        value = self.figures.get(stage, {}).get(unit)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def speed(self, precision: Precision) -> float | None:
        """Give training images per second, if every stage of that precision came through with right numbers."""
        came_through = all(f"{precision} {stage}" in self.figures for stage in STAGES)
        return self.number(f"{precision} training", "images/s") if came_through else None

    @property
    def survived(self) -> bool:
        """Whether both precisions came through."""
        return self.speed("float32") is not None and self.speed("bfloat16") is not None

    @property
    def best(self) -> tuple[Precision, float] | None:
        """The precision to take and its speed: float32, unless bfloat16 is clearly faster; None without float32.

        bfloat16 must be no slower in products and convolutions either: some processors emulate these, while a network
        as small as the one on trial spends its time elsewhere.
        """
        exact, short = self.speed("float32"), self.speed("bfloat16")
        if exact is None:
            return None
        emulated = any(
            (self.number(f"bfloat16 {stage}", "GFLOP/s") or 0) < (self.number(f"float32 {stage}", "GFLOP/s") or 0)
            for stage in STAGES[:-1]
        )
        return ("bfloat16", short) if short and short > MARGIN * exact and not emulated else ("float32", exact)


def run_trial(device: str, isa: str | None = None, command: Sequence[str] = COMMAND) -> Outcome:
    """Try one device under the oneDNN instruction set `isa` (None: as the machine is) and collect its answers.

    The child sends {"begin": stage}; then {"stage": stage, …} with figures, or with an "error"; at the end
    {"done": True}. The stage begun last is the one that failed if the child dies, takes more than STAGE_LIMIT seconds
    over it, or leaves without being done.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    environment |= {TRIAL_MARK: "1"} | ({} if isa is None else {ISA_VARIABLES[0]: isa})
    try:
        child = Child([*command, device], environment, group=True)
    except OSError as error:
        return Outcome({}, {START: f"could not be started ({error})"}, conclusive=False)
    figures: dict[str, Mapping[str, Any]] = {}
    failures: dict[str, str] = {}
    stage, patience, begun = START, START_LIMIT, time.monotonic()
    with child:
        while True:
            try:
                message = child.receive(begun + patience - time.monotonic())
            except (EOFError, TimeoutError) as error:
                grace = 2.0 if isinstance(error, EOFError) else 0.0  # it closes its output a moment before it ends
                ended = child.ended(grace, unfinished=" before it was done")
                failures[stage] = ended or f"gave no answer within {patience:g} s"
                conclusive = ended is not None and (stage != START or child.process.returncode < 0)
                return Outcome(figures, failures, conclusive)
            match message:
                case {"begin": str(stage)}:
                    begun, patience = time.monotonic(), STAGE_LIMIT
                case {"stage": str(named), "error": str(sentence)}:
                    failures[named] = sentence
                case {"stage": str(named)}:
                    figures[named] = message
                case {"done": True}:
                    return Outcome(figures, failures)


def decide(trial: Try) -> Hardware:
    """Try this machine and decide device, precisions, oneDNN's instruction set and threads."""
    measurements = {LOAD: round(load(), 2)}
    cpu: dict[Isa | None, Outcome] = {None: trial("cpu", None)}
    # Where something is deadly or wrong, ever fewer instructions are tried. What ran out of time says nothing about
    # instructions: the machine may have been busy.
    failed = cpu[None].conclusive and START not in cpu[None].failures and not cpu[None].survived
    if failed and platform.machine().lower() in ("x86_64", "amd64"):
        cpu |= {isa: trial("cpu", isa) for isa in get_args(Isa)}
    isa = _choose_isa(cpu)
    outcomes: dict[tuple[Device, Isa | None], Outcome] = {("cpu", tried): outcome for tried, outcome in cpu.items()}
    for device in cpu[None].figures.get(START, {}).get("devices", ()):
        outcomes[device, None] = trial(device, isa)
    choices = {
        device: outcome.best
        for (device, tried), outcome in outcomes.items()
        if outcome.best and (device != "cpu" or tried == isa)
    }
    settled = "cpu" in choices or any(outcome.conclusive for outcome in cpu.values())
    if not settled:
        choices["cpu"] = ("float32", 0.0)
    failures: dict[str, str] = {}
    for (device, tried), outcome in outcomes.items():
        suffix = f" ({tried})" if tried else ""
        for stage, figures in outcome.figures.items():
            for unit in figures:
                if (value := outcome.number(stage, unit)) is not None:
                    measurements[f"{device} {stage} {unit}{suffix}"] = round(value, 2)
        failures |= {f"{device} {stage}{suffix}": ended for stage, ended in outcome.failures.items()}
    threads = cpu[isa].number("threads", "fastest") or 0
    return Hardware(
        device=max(choices, key=lambda device: choices[device][1], default="cpu"),
        precisions={device: precision for device, (precision, _) in choices.items()},
        onednn_isa=isa,
        threads=int(threads) if threads >= 1 else usable_cores(),
        settled=settled, measurements=measurements, failures=failures,
    )  # fmt: skip


def _choose_isa(by_isa: Mapping[Isa | None, Outcome]) -> Isa | None:
    """Choose the clearly fastest setting under which everything survives, or else under which float32 does."""
    survivors = {isa: outcome for isa, outcome in by_isa.items() if outcome.survived}
    fastest, speed = None, 0.0
    for isa, outcome in (survivors or by_isa).items():
        if outcome.best and outcome.best[1] > MARGIN * speed:
            fastest, speed = isa, outcome.best[1]
    return fastest

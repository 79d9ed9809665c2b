"""From what the trials found to one answer: of what survives with right numbers, the fastest."""

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import final

from masil.hardware.child import START, Outcome
from masil.hardware.hardware import ISA_LADDER, LOAD, PRECISIONS, Hardware
from masil.hardware.machine import key, load, torch_version, usable_cores

# Ask for a trial by its arguments, under a oneDNN instruction set or, for None, as the machine is.
Ask = Callable[[list[str], str | None], Outcome]

MARGIN = 1.1  # what costs accuracy, instructions or compilation must be faster by this factor to be chosen
STAGES = ("matrix product", "convolution", "training")


@final
@dataclass(frozen=True)
class _Choice:
    """The best way to compute on one device."""

    precision: str
    speed: float  # training images per second
    isa: str | None = None


@final
@dataclass
class _Log:
    """Every figure and every failure of the trials, under names that people can read."""

    measurements: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def note(self, device: str, outcome: Outcome, isa: str | None = None) -> None:
        suffix = f" ({isa})" if isa else ""
        for stage, figures in outcome.found.items():
            for unit in figures:
                value = _number(outcome, stage, unit)
                if value is not None:
                    self.measurements[f"{device} {stage} {unit}{suffix}"] = round(value, 2)
        self.failures |= {f"{device} {stage}{suffix}": ended for stage, ended in outcome.failures.items()}


def decide(ask: Ask) -> Hardware:
    """Try this machine and decide device, precisions, oneDNN's instruction set, threads and engine."""
    log = _Log()
    log.measurements[LOAD] = round(load(), 2)
    tried = _try_cpu(ask, log)
    plain = tried[None]
    cpu = _choose(tried)
    isa = cpu.isa if cpu else None
    choices = {"cpu": cpu} if cpu else {}
    settled = cpu is not None or any(outcome.conclusive for outcome in tried.values())
    if not settled:
        choices["cpu"] = _Choice("float32", 0.0)
    for device in plain.found.get(START, {}).get("devices", ()):
        outcome = ask(["train", device], isa)
        log.note(device, outcome)
        if choice := _best(outcome):
            choices[device] = choice
    fastest = max(choices, key=lambda name: choices[name].speed, default="cpu")
    return Hardware(
        device=fastest,
        precisions={name: choice.precision for name, choice in choices.items()},
        onednn_isa=isa,
        threads=_threads(tried[isa]),
        engine=_engine(ask, isa, log) if fastest == "cpu" and cpu else "torch",
        torch=torch_version(),
        key=key(),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        settled=settled,
        measurements=log.measurements,
        failures=log.failures,
    )  # fmt: skip


def decide_compile(hardware: Hardware, ask: Ask) -> Hardware:
    """Try `torch.compile` on one training step and add whether it works and pays."""
    outcome = ask(["compile", hardware.device, hardware.precision], hardware.onednn_isa)
    log = _Log(dict(hardware.measurements), dict(hardware.failures))
    log.note(hardware.device, outcome)
    eager, compiled = (_number(outcome, stage, "ms") for stage in ("eager step", "compiled step"))
    pays = eager is not None and compiled is not None and compiled * MARGIN <= eager
    return replace(hardware, compile=pays, measurements=log.measurements, failures=log.failures)


def _try_cpu(ask: Ask, log: _Log) -> Mapping[str | None, Outcome]:
    """Train as the machine is and, if something of that is deadly or wrong, under ever fewer instructions.

    What ran out of time says nothing about instructions: the machine may have been busy.
    """
    tried: dict[str | None, Outcome] = {None: ask(["train", "cpu"], None)}
    plain = tried[None]
    failed = plain.conclusive and START not in plain.failures and not _survives_all(plain)
    if failed and platform.machine().lower() in ("x86_64", "amd64"):
        tried |= {isa: ask(["train", "cpu"], isa) for isa in ISA_LADDER}
    for isa, outcome in tried.items():
        log.note("cpu", outcome, isa)
    return tried


def _choose(tried: Mapping[str | None, Outcome]) -> _Choice | None:
    """Choose the fastest setting under which everything survives, or else the fastest under which float32 does."""
    whole = {isa: outcome for isa, outcome in tried.items() if _survives_all(outcome)}
    best: _Choice | None = None
    for isa, outcome in (whole or tried).items():
        choice = _best(outcome)
        if choice and (best is None or choice.speed > MARGIN * best.speed):
            best = replace(choice, isa=isa)
    return best


def _best(outcome: Outcome) -> _Choice | None:
    """Choose the precision of one trial: float32, unless bfloat16 is clearly faster. Without float32 nothing works."""
    speeds = {precision: _speed(outcome, precision) for precision in PRECISIONS}
    exact, short = speeds["float32"], speeds["bfloat16"]
    if exact is None:
        return None
    return _Choice("bfloat16", short) if short and short > MARGIN * exact else _Choice("float32", exact)


def _survives_all(outcome: Outcome) -> bool:
    return all(_speed(outcome, precision) is not None for precision in PRECISIONS)


def _speed(outcome: Outcome, precision: str) -> float | None:
    """Give training images per second, if every stage of that precision came through with right numbers."""
    came_through = all(f"{precision} {stage}" in outcome.found for stage in STAGES)
    return _number(outcome, f"{precision} training", "images/s") if came_through else None


def _threads(outcome: Outcome) -> int:
    found = _number(outcome, "threads", "fastest")
    return int(found) if found and found >= 1 else usable_cores()


def _engine(ask: Ask, isa: str | None, log: _Log) -> str:
    outcome = ask(["engine"], isa)
    log.note("cpu", outcome)
    torch, onnxruntime = (_number(outcome, f"{name} inference", "images/s") for name in ("torch", "onnxruntime"))
    return "onnxruntime" if onnxruntime is not None and onnxruntime >= (torch or 0.0) else "torch"


def _number(outcome: Outcome, stage: str, unit: str) -> float | None:
    """Give a figure if it is one: a child may say anything."""
    value = outcome.found.get(stage, {}).get(unit)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

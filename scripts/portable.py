"""Run the numeric tests under several arithmetics: every processor rounds in its own way, and none may fail for it.

`make test-portable` runs all of them; `--quick` is the part that fits CI. Libraries are held to other instruction sets
by environment variables, which processors of another make ignore. The table at the end has a line for each arithmetic;
the exit code is 0 only if all tests passed, or were skipped, everywhere alike.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAINING = ("batches", "convolution", "loss", "network", "optimiser", "recipe")
ROOMS = [
    "tests/concepts",
    "tests/collapse",
    "tests/learner",
    "tests/methods",
    *(f"tests/training/test_{part}.py" for part in TRAINING),
]
QUICK_ROOMS = ["tests/concepts", "tests/collapse", "tests/methods/test_conformance.py"]
QUICK_CONFORMANCE = "not test_conformance or test_separated_classes_are_learnt"


@dataclass(frozen=True)
class Arithmetic:
    """Environment variables that decide how sums are made, and whether hypothesis tries examples of its own."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    threads: int = 1
    fresh: bool = False


AVX2 = Arithmetic(
    "AVX2",
    {
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
)
DEFAULT = Arithmetic("torch without vectors", {"ATEN_CPU_CAPABILITY": "default"})
COMPATIBLE = Arithmetic(
    "compatible MKL, OpenBLAS, oneDNN",
    {
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Prescott",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
)
ALL = [
    Arithmetic("the machine's own"),
    Arithmetic("two threads", threads=2),
    AVX2,
    DEFAULT,
    COMPATIBLE,
    Arithmetic("fresh examples", fresh=True),
]
QUICK = [AVX2, DEFAULT]


@dataclass(frozen=True)
class Run:
    """What became of each test under an arithmetic."""

    arithmetic: Arithmetic
    outcomes: dict[str, str]
    seconds: float

    def count(self, outcome: str) -> int:
        """Give how many tests had this outcome."""
        return list(self.outcomes.values()).count(outcome)


def play(arithmetic: Arithmetic, tests: list[str], workers: int) -> Run:
    """Run the tests in processes of their own, and read what became of each."""
    environment = os.environ | arithmetic.variables | {"OMP_NUM_THREADS": str(arithmetic.threads), "CI": "1"}
    options = ["-q", "-n", str(max(1, workers // arithmetic.threads)), "--dist", "loadgroup"]
    if arithmetic.fresh:
        del environment["CI"]  # where it is set, examples are the same every time
        options.append(f"--hypothesis-seed={random.SystemRandom().randrange(2**32)}")
    sys.stdout.write(f"\n== {arithmetic.name}: pytest {' '.join(options)}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        report, start = Path(folder) / "report.xml", time.monotonic()
        command = [sys.executable, "-m", "pytest", *options, f"--junitxml={report}", *tests]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603
        outcomes = read(report) if report.exists() else {}
    if code and "failed" not in outcomes.values():
        outcomes["pytest itself"] = "failed"  # nothing collected, or a worker that died
    return Run(arithmetic, outcomes, time.monotonic() - start)


def read(report: Path) -> dict[str, str]:
    """Give the outcome of each test in a JUnit report: passed, failed or skipped."""
    outcomes: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  pytest wrote it a moment ago
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = f"{case.get('classname')}::{case.get('name')}"
        outcomes[name] = "failed" if outcomes.get(name) == "failed" else outcome
    return outcomes


def table(runs: list[Run]) -> str:
    """Give a line for each arithmetic, then the tests that failed anywhere or differ in outcome."""
    lines = [f"{'arithmetic':34} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}"]
    for run in runs:
        counts = f"{run.count('passed'):7} {run.count('failed'):7} {run.count('skipped'):8}"
        lines.append(f"{run.arithmetic.name:34} {counts} {run.seconds:8.0f}")
    for name in wrong(runs):
        said = ", ".join(f"{run.arithmetic.name}: {run.outcomes.get(name, 'not run')}" for run in runs)
        lines.append(f"{name}\n    {said}")
    return "\n".join(lines)


def wrong(runs: list[Run]) -> list[str]:
    """Give the tests that failed under any arithmetic, or whose outcome is not the same under all."""
    names = sorted({name for run in runs for name in run.outcomes})
    outcomes = {name: {run.outcomes.get(name, "not run") for run in runs} for name in names}
    return [name for name, different in outcomes.items() if "failed" in different or len(different) > 1]


def main() -> int:
    """Run what was asked for, and give the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two arithmetics, and the tests most sensitive to them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to test in")
    asked = parser.parse_args()
    tests = [*QUICK_ROOMS, "-k", QUICK_CONFORMANCE] if asked.quick else ROOMS
    runs = [play(arithmetic, tests, asked.workers) for arithmetic in (QUICK if asked.quick else ALL)]
    sys.stdout.write(f"\n{table(runs)}\n")
    return 1 if wrong(runs) else 0


if __name__ == "__main__":
    sys.exit(main())

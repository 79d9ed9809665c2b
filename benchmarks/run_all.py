"""Every benchmark at a small size, and one page with their ratios: python benchmarks/run_all.py [--out FILE]

Made for seeing a regression at a glance, in under ten minutes on a quiet machine. The sizes are not those of
docs/benchmarks.md, so compare a page with another page. Ratios are of times of one run: a busy machine disturbs them
less than it does times, and the page says how busy it was. What cannot be played is named with the reason.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from masil import __version__
from masil.hardware import cpu_model, torch_version, usable_cores

HERE = Path(__file__).parent
Found = Mapping[str, Any]


@dataclass(frozen=True)
class Ratio:
    """A figure of a benchmark's JSON file, and what it should be."""

    what: str
    read: Callable[[Found], float]
    goal: str  # ">= 4" or "<= 1.5"

    def reached(self, value: float) -> bool:
        """Say whether the goal is reached."""
        sign, bound = self.goal.split()
        return value >= float(bound) if sign == ">=" else value <= float(bound)


@dataclass(frozen=True)
class Benchmark:
    """How a script is called at a small size, and which ratios it gives."""

    script: str
    arguments: str
    option: str = "--json"  # that names the file to write; "" where there is none
    ratios: tuple[Ratio, ...] = ()


def _times(kind: str, peer: str) -> Callable[[Found], float]:
    return lambda found: found[kind][peer]["seconds"] / found[kind]["masil"]["seconds"]


BENCHMARKS = (
    Benchmark(
        "concepts.py", "--rows 4000 --iterations 50 --only scikit scipy --limits --busy", "--out", (
            Ratio("NNLS, × as fast as scipy", _times("nnls", "scipy, row by row"), ">= 10"),
            Ratio("NNLS, × as fast as scikit-learn", _times("nnls", "scikit-learn, transform"), ">= 10"),
            Ratio("NMF, × as fast as scikit-learn", _times("nmf", "scikit-learn, cd"), ">= 3"),
            Ratio("NMF on easy rows, × as fast as scikit-learn", lambda f: f["limits"]["easy, × scikit-learn"], ">= 5"),
            Ratio("NMF, × its bare products", lambda f: f["limits"]["NMF, × bare products"], "<= 1.5"),
            Ratio("NNLS, × its bare products", lambda f: f["limits"]["NNLS, × bare products"], "<= 1.5"),
            Ratio("NMF beside two busy processes, × alone", lambda f: f["busy"]["NMF, busy / quiet"], "<= 3"),
            Ratio("NNLS beside two busy processes, × alone", lambda f: f["busy"]["NNLS, busy / quiet"], "<= 3"),
        ),
    ),
    Benchmark(
        "learner.py", "--rounds 5 --rows 8000", "--out", (
            Ratio("fit, × scikit-learn's shrunk LDA", lambda f: f["fit_over_lda"], "<= 10"),
            Ratio("fit of twice the rows, × once", lambda f: f["growth"]["rows"], "<= 2.2"),
            Ratio("predict adds, share of the engine's time", lambda f: f["images"]["predict_adds"], "<= 0.05"),
        ),
    ),
    Benchmark(
        "inference.py", "--images 96 --rounds 3", "--json", (
            Ratio("engine, × eager", lambda f: f["backbones"]["efficientnet_lite0"]["engine_over_eager"], ">= 4"),
            Ratio(
                "pipeline, share of the engine",
                lambda f: f["backbones"]["efficientnet_lite0"]["pipeline_over_engine"], ">= 0.85",
            ),
        ),
    ),
    Benchmark(
        "predict.py", "--images 128 --rounds 2 --times 8", "--json", (
            Ratio("a folder, share of the engine", lambda f: _named(f, "of_engine"), ">= 0.85"),
            Ratio("a folder, × eager", lambda f: _named(f, "of_eager"), ">= 4"),
            Ratio("an explanation, × prediction and backward pass", lambda f: _named(f, "ratio"), "<= 1.5"),
        ),
    ),
    Benchmark(
        "training.py", "--pixels 32 --batch 128 --steps 2 --rounds 2", "--out", (
            Ratio("training, × the usual loop", lambda f: _rate(f, "usual"), ">= 2"),
            Ratio("training, share of the bare convolutions", lambda f: _rate(f, "bare"), ">= 0.9"),
        ),
    ),
    Benchmark(
        "studio.py", "--people 40 --rounds 1", "--out", (
            Ratio("studio, errors", lambda f: f["errors"], "<= 0"),
            Ratio("studio, answers by a model that never was", lambda f: f["wrong_model"], "<= 0"),
            Ratio("studio, seconds to teach a class alone", lambda f: f["learn_alone_median"], "<= 1"),
        ),
    ),
    Benchmark("loading.py", "--repeats 1", ""),
    Benchmark("faithfulness.py", "--images 4"),
    Benchmark("unknown.py", ""),
)  # fmt: skip


def _named(found: Any, name: str) -> float:
    """Find the first figure of this name, however deep."""
    if isinstance(found, dict):
        if isinstance(found.get(name), int | float):
            return float(found[name])
        for value in found.values():
            try:
                return _named(value, name)
            except KeyError:
                continue
    raise KeyError(name)


def _rate(found: Found, other: str) -> float:
    rate = found["speed"][0]["images_per_second"]
    return float(rate["ours"] / rate[other])


def play(benchmark: Benchmark, folder: Path, limit: float) -> tuple[Found, str, float]:
    """Run one benchmark; give its figures, what it printed or why it ended, and its seconds.

    After `limit` seconds it is ended with all that it has started.
    """
    file = folder / f"{benchmark.script}.json"
    writes = [benchmark.option, str(file)] if benchmark.option else []
    command = [sys.executable, str(HERE / benchmark.script), *benchmark.arguments.split(), *writes]
    start = time.perf_counter()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, cwd=HERE, start_new_session=True) as child:  # type: ignore[call-overload]
        try:
            said, complaints = child.communicate(timeout=limit)
            if child.returncode:
                said = f"Not played: {(complaints.strip().splitlines() or [f'code {child.returncode}'])[-1]}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            said = f"Not played: not done after {limit:.0f} s"
    found = json.loads(file.read_text()) if file.exists() else {}
    return found, said, time.perf_counter() - start


def rows_of(benchmark: Benchmark, found: Found) -> list[str]:
    """Give a row of the page's table for each ratio; one that was not measured says so."""
    rows = []
    for ratio in benchmark.ratios:
        try:
            value = float(ratio.read(found))
            verdict = "reached" if ratio.reached(value) else "**missed**"
            rows.append(f"| {ratio.what} | {value:.3g} | {ratio.goal} | {verdict} |")
        except (KeyError, TypeError, IndexError):
            rows.append(f"| {ratio.what} | – | {ratio.goal} | not measured |")
    return rows


def commit() -> str:
    def git(*question: str) -> str:
        return subprocess.run(["git", "-C", str(HERE), *question], capture_output=True, text=True).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + (
        " with changes" if git("status", "--porcelain") else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks.md"), help="the page")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one benchmark")
    parser.add_argument("--only", nargs="*", default=[], help="scripts, by parts of their names")
    given = parser.parse_args()
    load = os.getloadavg()[0] / usable_cores() if hasattr(os, "getloadavg") else float("nan")
    table, details, start = [], [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for benchmark in BENCHMARKS:
            if given.only and not any(part in benchmark.script for part in given.only):
                continue
            found, said, seconds = play(benchmark, Path(folder), given.limit)
            print(f"{benchmark.script}: {seconds:.0f} s", flush=True)
            table += rows_of(benchmark, found)
            command = f"python benchmarks/{benchmark.script} {benchmark.arguments}".strip()
            details.append(f"## `{command}` ({seconds:.0f} s)\n\n```\n{said.strip()}\n```\n")
    about = (
        f"masil {__version__}, commit {commit()}; {cpu_model()}, {usable_cores()} cores, torch {torch_version()}; "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; load per core at the beginning {load:.2f}; "
        f"{time.perf_counter() - start:.0f} s in all."
    )
    head = "| ratio | here | goal | |\n| --- | ---: | ---: | --- |"
    given.out.write_text("\n".join(["# Benchmarks at a small size", "", about, "", head, *table, "", *details]))
    print(f"{given.out}: {sum('missed' in row for row in table)} of {len(table)} goals missed")


if __name__ == "__main__":
    main()

"""Every benchmark of speed at a small size, and one page: python benchmarks/run_all.py [--out FILE] [--against FILE]

Made for seeing a regression at a glance, in at most ten minutes (--minutes), of which each benchmark has its share. The
sizes are not those of docs/benchmarks.md, so compare a page with another page: its figures are beside it as JSON, and
--against marks what has become worse than there by more than a factor (--factor). Ratios are of times of one run: a
busy machine disturbs them less than it does times, and the page says how busy it was. What cannot be played is named
with the reason.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from masil import __version__
from masil.hardware import cpu_model, torch_version, usable_cores
from masil.storage import read_json, write_json

HERE = Path(__file__).parent
LEFT_OUT = "defaults.py, ladder.py, recipes.py and retrain.py, which study what is learnt and not how fast, for hours."
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

    def worsened(self, value: float, before: float) -> float:
        """Give the factor by which it is worse than before, below 1 where it is better."""
        small, large = (value, before) if self.goal.startswith(">=") else (before, value)
        return 1.0 if small == large else large / small if small > 0 else math.inf


@dataclass(frozen=True)
class Benchmark:
    """How a script is called at a small size, its share of the time, and which ratios it gives."""

    script: str
    arguments: str
    seconds: float  # of ten minutes; all together are 600
    option: str = "--json"  # that names the file to write; "" where there is none
    ratios: tuple[Ratio, ...] = ()


def _times(kind: str, peer: str) -> Callable[[Found], float]:
    return lambda found: found[kind][peer]["seconds"] / found[kind]["masil"]["seconds"]


BENCHMARKS = (
    Benchmark(
        "concepts.py", "--rows 4000 --iterations 50 --only scikit scipy --limits --busy", 80, "--out", (
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
        "concepts.py", "--data cifar100 --skip nnls --only scikit-learn,", 100, "--out", (
            Ratio("NMF of 30,000 crops, × as fast as scikit-learn", _times("nmf", "scikit-learn, cd"), ">= 20"),
        ),
    ),
    Benchmark(
        "learner.py", "--rounds 5 --rows 8000", 100, "--out", (
            Ratio("fit, × scikit-learn's shrunk LDA", lambda f: f["fit_over_lda"], "<= 10"),
            Ratio("fit of 3,000 photos, share of extraction", lambda f: f["photos"]["share"]["processor"], "<= 0.1"),
            Ratio("fit of twice the rows, × once", lambda f: f["growth"]["rows"], "<= 2.2"),
            Ratio("predict adds, share of the engine's time", lambda f: f["images"]["predict_adds"], "<= 0.05"),
        ),
    ),
    Benchmark(
        "inference.py", "--images 96 --rounds 3", 40, "--json", (
            Ratio("engine, × eager", lambda f: f["backbones"]["efficientnet_lite0"]["engine_over_eager"], ">= 4"),
            Ratio(
                "pipeline, share of the engine",
                lambda f: f["backbones"]["efficientnet_lite0"]["pipeline_over_engine"], ">= 0.85",
            ),
        ),
    ),
    Benchmark(
        "predict.py", "--images 128 --rounds 2 --times 8", 40, "--json", (
            Ratio("a folder, share of the engine", lambda f: _named(f, "of_engine"), ">= 0.85"),
            Ratio("a folder, × eager", lambda f: _named(f, "of_eager"), ">= 4"),
            Ratio("an explanation, × prediction and backward pass", lambda f: _named(f, "ratio"), "<= 1.5"),
        ),
    ),
    Benchmark(
        "training.py", "--pixels 32 --batch 128 --steps 2 --rounds 2", 45, "--out", (
            Ratio("training, × the usual loop", lambda f: _rate(f, "usual"), ">= 2"),
            Ratio("training, share of the bare convolutions", lambda f: _rate(f, "bare"), ">= 0.9"),
        ),
    ),
    Benchmark(
        "startup.py", "--rounds 3", 40, "--json", (
            Ratio("first label, × import torch", lambda f: f["ratios"]["predict, warm / import torch"], "<= 1.4"),
            Ratio("help, × import torch", lambda f: f["ratios"]["masil --help / import torch"], "<= 0.25"),
        ),
    ),
    Benchmark(
        "studio.py", "--people 40 --rounds 1", 35, "--out", (
            Ratio("studio, errors", lambda f: f["errors"], "<= 0"),
            Ratio("studio, answers by a model that never was", lambda f: f["wrong_model"], "<= 0"),
            Ratio("studio, seconds to teach a class alone", lambda f: f["learn_alone_median"], "<= 1"),
        ),
    ),
    Benchmark("loading.py", "--repeats 1", 20, ""),
    Benchmark("faithfulness.py", "--images 4", 40),
    Benchmark("unknown.py", "", 60),
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
    file = folder / f"{BENCHMARKS.index(benchmark)}.json"
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


def figures_of(benchmark: Benchmark, found: Found) -> dict[str, float]:
    """Give the ratios that were measured."""
    figures = {}
    for ratio in benchmark.ratios:
        with suppress(KeyError, TypeError, IndexError):
            figures[ratio.what] = float(ratio.read(found))
    return figures


def row_of(ratio: Ratio, value: float | None, before: float | None, factor: float) -> str:
    """Give a row of the page's table; what is worse than before by more than the factor says so."""
    if value is None:
        return f"| {ratio.what} | – | {_figure(before)} | {ratio.goal} | not measured |"
    verdict = "reached" if ratio.reached(value) else "**missed**"
    if before is not None and (worsened := ratio.worsened(value, before)) > factor:
        verdict += f", **{worsened:.1f} × worse**"
    return f"| {ratio.what} | {value:.3g} | {_figure(before)} | {ratio.goal} | {verdict} |"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def commit() -> str:
    def git(*question: str) -> str:
        return subprocess.run(["git", "-C", str(HERE), *question], capture_output=True, text=True).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + (
        " with changes" if git("status", "--porcelain") else ""
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks.md"), help="the page")
    parser.add_argument("--minutes", type=float, default=10.0, help="in all; each benchmark is ended after its share")
    parser.add_argument("--only", nargs="*", default=[], help="scripts, by parts of their names")
    parser.add_argument("--against", type=Path, help="the JSON file beside an earlier page")
    parser.add_argument("--factor", type=float, default=1.25, help="by which a figure may be worse than there")
    given = parser.parse_args()
    earlier = read_json(given.against) if given.against else {"about": "", "figures": {}}
    load = os.getloadavg()[0] / usable_cores() if hasattr(os, "getloadavg") else float("nan")
    figures: dict[str, float] = {}
    details, start = [], time.perf_counter()
    chosen = [one for one in BENCHMARKS if not given.only or any(part in one.script for part in given.only)]
    with tempfile.TemporaryDirectory() as folder:
        for benchmark in chosen:
            limit = benchmark.seconds * given.minutes / 10
            found, said, seconds = play(benchmark, Path(folder), limit)
            print(f"{benchmark.script}: {seconds:.0f} s", flush=True)
            figures |= figures_of(benchmark, found)
            command = f"python benchmarks/{benchmark.script} {benchmark.arguments}".strip()
            details.append(f"## `{command}` ({seconds:.0f} s)\n\n```\n{said.strip()}\n```\n")
    about = (
        f"masil {__version__}, commit {commit()}; {cpu_model()}, {usable_cores()} cores, torch {torch_version()}; "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; load per core at the beginning {load:.2f}; "
        f"{time.perf_counter() - start:.0f} s in all."
    )
    ratios = [ratio for benchmark in chosen for ratio in benchmark.ratios]
    before = earlier["figures"]
    table = [row_of(ratio, figures.get(ratio.what), before.get(ratio.what), given.factor) for ratio in ratios]
    head = "| ratio | here | before | goal | |\n| --- | ---: | ---: | ---: | --- |"
    notes = [about, "", *([f"Before: {earlier['about']}", ""] if given.against else []), f"Left out: {LEFT_OUT}", ""]
    given.out.write_text("\n".join(["# Benchmarks at a small size", "", *notes, head, *table, "", *details]))
    write_json(given.out.with_suffix(".json"), {"about": about, "figures": figures})
    missed, worse = (sum(mark in row for row in table) for mark in ("missed", "worse"))
    print(f"{given.out}: of {len(table)} goals {missed} missed" + (f", {worse} figures worse" if given.against else ""))


if __name__ == "__main__":
    main()

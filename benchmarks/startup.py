"""How long until the first answer: python benchmarks/startup.py [--folder DIR] [--rounds N] [--json FILE]

Each figure is of whole processes, from the command typed to what is waited for, by the clock and as processor time,
children included; medians over rounds that take turns:
  import torch      and nothing else: what no answer can be faster than, as long as it takes torch
  masil --help      imports no torch
  predict, warm     `masil predict` of one photo to its label
  serve, warm       `masil serve` to its first answered request
  predict, cold     with an empty cache folder of its own: the machine is tried, the graph traced, both engines timed
Warm means that another command has filled the cache folder. What the system keeps of files in memory cannot be dropped
without special rights, so "cold" is no first start after booting.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from inference import machine
from masil.data import data_root
from masil.learner import Masil
from masil.storage import write_json
from predict import files_of, paths_of

MASIL = [sys.executable, "-m", "masil"]
GOALS = {"predict, warm / import torch": 1.4, "masil --help / import torch": 0.25}


def wait(command: list[str], environment: Mapping[str, str]) -> None:
    """Run a command to its end."""
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def serve(model: Path, photo: Path, environment: Mapping[str, str]) -> None:
    """Start the studio, ask it once, and end it."""
    command = [*MASIL, "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout
            found = re.search(r"http://\S+?(?=/)", child.stdout.readline())
            assert found, "the studio gave no address"
            sent = [("images", (photo.name, photo.read_bytes()))]
            httpx.post(f"{found[0]}/api/predict", files=sent, timeout=60).raise_for_status()
        finally:
            child.terminate()


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Give the seconds of the clock and of the processor that child processes took."""
    clock, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - clock
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    photos = data_root() / "CUB_200_2011" / "images"
    parser.add_argument("--folder", type=Path, default=photos, help="JPEG files to learn from and to ask about")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", type=int, default=1, help="rounds with an empty cache")
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = parser.parse_args()
    images = files_of(chosen.folder, 30)
    photo = paths_of(images)[0]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "birds.masil")
        Masil(concepts=8, device="cpu").fit(images, [f"class {at % 5}" for at in range(30)]).save(model)

        def cache(name: str) -> dict[str, str]:
            return {**os.environ, "MASIL_CACHE": str(Path(folder, name)), "XDG_CACHE_HOME": str(Path(folder, name))}

        warm, ask = cache("warm"), [*MASIL, "predict", str(model), str(photo)]
        ways: dict[str, Callable[[], None]] = {
            "import torch": lambda: wait([sys.executable, "-c", "import torch"], warm),
            "masil --help": lambda: wait([*MASIL, "--help"], warm),
            "predict, warm": lambda: wait(ask, warm),
            "serve, warm": lambda: serve(model, photo, warm),
        }
        for work in ways.values():
            work()
        rounds = [{name: timed(work) for name, work in ways.items()} for _ in range(chosen.rounds)]
        cold = [{"predict, cold": timed(lambda at=at: wait(ask, cache(f"cold {at}")))} for at in range(chosen.cold)]
    taken = {name: [one[name] for one in rounds] for name in ways}
    taken |= {"predict, cold": [one["predict, cold"] for one in cold]} if cold else {}
    medians = {name: [statistics.median(column) for column in zip(*each, strict=True)] for name, each in taken.items()}
    for name, (clock, busy) in medians.items():
        print(f"{name:16}{clock:8.2f} s, of the processor {busy:6.2f} s")
    ratios = {}
    for name, goal in GOALS.items():
        way, torch_alone = name.split(" / ")
        ratios[name] = statistics.median(one[way][1] / one[torch_alone][1] for one in rounds)
        print(f"{name}: {ratios[name]:.2f} of processor time (goal <= {goal:g})")
    if chosen.json:
        write_json(chosen.json, {**machine(), "seconds": medians, "ratios": ratios})


if __name__ == "__main__":
    main()

"""How long people wait for an answer, and how many answers a folder gets: python benchmarks/predict.py

Warm, from a file on the disk to the class and both confidences, on one core:
  ordinary photo   a file of the folder
  12 megapixels    a JPEG of 4000 × 3000 made for the occasion, decoded at a fraction of its size
An explanation with heat maps of three concepts, warm, beside a prediction of the same photo and one backward pass of
the backbone, in rounds that take turns.
Over a folder, in rounds that take turns so that a busy machine disturbs all alike:
  eager    PyTorch as one writes it first: float32, NCHW, batches of 32, pixels already decoded
  engine   the engine that masil opens, the same batches as the folder is read in, pixels already decoded
  folder   `Masil.predict` of the file names, everything included
Goals: 30 ms, 90 ms; an explanation at most 1.5 × a prediction and a backward pass; folder >= 85 % of the engine and
>= 4 × eager. Times are medians; ratios are taken within a round.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from inference import in_turn, machine, without_files
from masil.backbones import open_engine
from masil.data import Images, data_root, file_images
from masil.hardware import cpu_model, usable_cores
from masil.learner import Masil
from masil.storage import write_json

GOALS = {"ordinary photo": 30.0, "12 megapixels": 90.0, "explanation": 1.5, "of_engine": 0.85, "of_eager": 4.0}


def one_core() -> None:
    """Keep this process, and what it starts from now on, to one core."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def large_photo(source: Path, target: Path) -> Path:
    """Make a 12-megapixel JPEG with detail at every size: a photo enlarged, with grain."""
    with Image.open(source) as photo:
        pixels = np.asarray(photo.convert("RGB").resize((4000, 3000), Image.Resampling.BICUBIC), np.int16)
    grain = np.random.default_rng(0).normal(0, 8, pixels.shape).astype(np.int16)
    Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8)).save(target, quality=90)
    return target


def waits(model: Masil, files: dict[str, Path], times: int) -> dict[str, float]:
    """Give the median milliseconds of a warm answer for each file."""
    found = {}
    for name, file in files.items():
        taken = []
        for _ in range(times + 3):
            start = time.perf_counter()
            model.answer([file])
            taken.append(1e3 * (time.perf_counter() - start))
        found[name] = statistics.median(taken[3:])
    return found


def explanation(model: Masil, file: Path, times: int) -> dict[str, float]:
    """Give the median milliseconds of a prediction, a backward pass and an explanation, and the median ratio."""
    backbone = model.encoder_.backbone
    assert backbone is not None
    pixels = file_images(file.parent, [file.name]).load([0], backbone.framing)
    rounds = []
    for _ in range(times + 3):
        start = time.perf_counter()
        model.answer([file])
        answered = time.perf_counter()
        x = backbone.preprocess(pixels).requires_grad_()
        total = backbone(x).sum()
        forward = time.perf_counter()
        torch.autograd.grad(total, x)
        backward = time.perf_counter()
        model.explain([file])
        rounds.append((answered - start, backward - forward, time.perf_counter() - backward))
    warm = rounds[3:]
    medians = [1e3 * statistics.median(column) for column in zip(*warm, strict=True)]
    ratio = statistics.median(explained / (answer + back) for answer, back, explained in warm)
    return {"prediction": medians[0], "backward": medians[1], "explanation": medians[2], "ratio": ratio}


def throughput(model: Masil, images: Images, rounds: int) -> dict[str, Any]:
    """Give images per second of the three ways, and the ratios within a round."""
    backbone = model.encoder_.backbone
    assert backbone is not None
    pixels = images.load(slice(None), backbone.framing)
    paths = paths_of(images)
    ways = without_files(backbone, open_engine(backbone, device="cpu"), pixels)
    ways["folder"] = (lambda: model.predict(paths), len(images))
    taken = [{name: rate for name, (rate, _) in one.items()} for one in in_turn(ways, rounds)]
    return {
        "images_per_second": {name: statistics.median(one[name] for one in taken) for name in ways},
        "of_engine": statistics.median(one["folder"] / one["engine"] for one in taken),
        "of_eager": statistics.median(one["folder"] / one["eager"] for one in taken),
        "rounds": taken,
    }


def paths_of(images: Images) -> list[Path]:
    """Give the files of images that are in files."""
    return [images.source.root / images.name(position) for position in range(len(images))]


def files_of(folder: Path, n: int) -> Images:
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))
    if len(files) < n:
        raise SystemExit(
            f"There are {len(files)} .jpg files under {folder}, but {n} are needed; see --folder, --images."
        )
    return file_images(folder, [files[i * len(files) // n] for i in range(n)], torch.zeros(n))


def main() -> None:
    data = data_root()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=data / "CUB_200_2011" / "images", help="JPEG files to read")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=30, help="answers for a single photo")
    parser.add_argument("--one-core", action="store_true", help="measure the waits alone, as the goals mean them")
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = parser.parse_args()
    if chosen.one_core:
        one_core()
    images = files_of(chosen.folder, chosen.images)
    few = images.subset(slice(0, 60))
    model = Masil(concepts=16, device="cpu").fit(few, [f"class {at % 5}" for at in range(len(few))])
    print(f"{cpu_model()}, {usable_cores()} cores, torch {torch.__version__}")
    found: dict[str, Any] = {"goals": GOALS}
    with tempfile.TemporaryDirectory() as folder:
        large = large_photo(paths_of(images)[0], Path(folder, "large.jpg"))
        found["milliseconds"] = waits(
            model, {"ordinary photo": paths_of(images)[0], "12 megapixels": large}, chosen.times
        )
    for name, wait in found["milliseconds"].items():
        print(f"{name:16} {wait:7.1f} ms   goal {GOALS[name]:.0f} ms: {'reached' if wait < GOALS[name] else 'MISSED'}")
    found["explanation"] = cost = explanation(model, paths_of(images)[0], chosen.times)
    reached = "reached" if cost["ratio"] <= GOALS["explanation"] else "MISSED"
    parts = f"a prediction ({cost['prediction']:.1f} ms) and a backward pass ({cost['backward']:.1f} ms)"
    goal = f"goal {GOALS['explanation']}: {reached}"
    print(f"explanation      {cost['explanation']:7.1f} ms   {cost['ratio']:.2f} × {parts}, {goal}")
    if not chosen.one_core:
        found |= throughput(model, images, chosen.rounds)
        print("images/s: " + ", ".join(f"{name} {rate:.1f}" for name, rate in found["images_per_second"].items()))
        for name, what in (("of_engine", "of the engine"), ("of_eager", "times eager")):
            print(f"folder {found[name]:.2f} {what}: {'reached' if found[name] >= GOALS[name] else 'MISSED'}")
    if chosen.json:
        write_json(chosen.json, machine() | found)


if __name__ == "__main__":
    main()

"""How fast a frozen backbone runs, from image files on the disk to activations: python benchmarks/inference.py

For each backbone, in rounds that take turns so that a busy machine disturbs all alike:
  eager     PyTorch as one writes it first: float32, NCHW, batches of 32, pixels already decoded
  engine    ONNX Runtime as masil opens it, pixels already decoded
  decoding  files to 224 × 224 pixels on all cores, nothing else
  pipeline  files to activations, as `extract` does it
Goals: engine >= 4 × eager for EfficientNet-Lite0; pipeline >= 85 % of the engine. The figures are medians over the
rounds; ratios are taken within a round. Decoding and engine share the same cores, so the pipeline cannot be faster than
engine / (engine + decoding) in processor time, which is printed as its limit.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from masil.backbones import Backbone, Engine, create, open_engine, stream
from masil.data import Images, data_root, file_images
from masil.hardware import cpu_model, usable_cores
from masil.storage import write_json

EAGER_BATCH, BATCH = 32, 64
GOAL_ENGINE, GOAL_PIPELINE = 4.0, 0.85
Ways = dict[str, tuple[Callable[[], object], int]]  # what is timed, and how many images it takes


def timed(work: Callable[[], object], n: int) -> tuple[float, float]:
    """Give images per second, and the processor's milliseconds per image."""
    wall, busy = time.perf_counter(), time.process_time()
    work()
    return n / (time.perf_counter() - wall), 1e3 * (time.process_time() - busy) / n


def in_turn(ways: Ways, rounds: int) -> list[dict[str, tuple[float, float]]]:
    """Time all ways, `rounds` times in turn, each warmed up once."""
    for work, _ in ways.values():
        work()
    return [{name: timed(work, count) for name, (work, count) in ways.items()} for _ in range(rounds)]


def without_files(backbone: Backbone, engine: Engine, pixels: Tensor) -> Ways:
    """Give the ways that begin with decoded pixels: the eager one, on the first of them, and the engine."""
    few = pixels[: 2 * EAGER_BATCH]

    @torch.inference_mode()
    def eager() -> None:
        for part in few.split(EAGER_BATCH):
            backbone(backbone.preprocess(part))

    return {
        "eager": (eager, len(few)),
        "engine": (lambda: [engine.run(part) for part in pixels.split(BATCH)], len(pixels)),
    }


def machine() -> dict[str, Any]:
    """Say what the figures were measured on, and how busy it is."""
    return {
        "machine": {"processor": cpu_model(), "cores": usable_cores(), "system": platform.platform()},
        "torch": torch.__version__,
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def measure(backbone: Backbone, images: Images, rounds: int) -> dict[str, Any]:
    """Time the four ways, `rounds` times in turn."""
    n, framing = len(images), backbone.framing
    pixels = images.load(slice(None), framing)
    start = time.perf_counter()
    engine = open_engine(backbone, engine="onnxruntime", device="cpu")
    opening = time.perf_counter() - start
    ways = without_files(backbone, engine, pixels) | {
        "decoding": (lambda: images.load(slice(None), framing), n),
        "pipeline": (lambda: list(stream(engine, images, framing, batch=BATCH)), n),
    }
    taken = in_turn(ways, rounds)
    rate = {name: statistics.median(one[name][0] for one in taken) for name in ways}
    busy = {name: statistics.median(one[name][1] for one in taken) for name in ways}
    return {
        "images_per_second": rate,
        "processor_ms_per_image": busy,
        "engine_over_eager": statistics.median(one["engine"][0] / one["eager"][0] for one in taken),
        "pipeline_over_engine": statistics.median(one["pipeline"][0] / one["engine"][0] for one in taken),
        "pipeline_limit": busy["engine"] / (busy["engine"] + busy["decoding"]),
        "seconds_to_open": opening,
        "rounds": taken,
    }


def pictures(folder: Path, n: int) -> Images:
    """Take `n` files from all over the folder."""
    files = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".png")
    )
    if not files:
        raise SystemExit(f"There are no .jpg or .png files under {folder}; name another folder with --folder.")
    chosen = [files[i * len(files) // n] for i in range(n)]
    return file_images(folder, chosen, torch.zeros(n))


def main() -> None:
    data = data_root()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=data / "CUB_200_2011" / "images", help="image files to read")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    chosen = parser.parse_args()
    images = pictures(chosen.folder, chosen.images)
    resnet18 = data / "weights" / "resnet18_imagenet.safetensors"
    backbones = [
        create("efficientnet_lite0", weights="imagenet"),
        create("resnet18", weights=resnet18 if resnet18.exists() else None),
    ]
    print(f"{len(images)} files of {chosen.folder}; {cpu_model()}, {usable_cores()} cores, torch {torch.__version__}")
    print(f"{'images/s':20}{'eager':>9}{'engine':>9}{'decoding':>10}{'pipeline':>10}   ratios within a round")
    found = {}
    for backbone in backbones:
        result = measure(backbone, images, chosen.rounds)
        found[backbone.name] = result
        rate = result["images_per_second"]
        ratios = (
            f"engine {result['engine_over_eager']:.2f} × eager, pipeline {result['pipeline_over_engine']:.0%} of it "
            f"(limit {result['pipeline_limit']:.0%})"
        )
        figures = f"{rate['eager']:9.1f}{rate['engine']:9.1f}{rate['decoding']:10.1f}{rate['pipeline']:10.1f}"
        print(f"{backbone.name:20}{figures}   {ratios}")
    fast = found["efficientnet_lite0"]["engine_over_eager"] >= GOAL_ENGINE
    whole = all(result["pipeline_over_engine"] >= GOAL_PIPELINE for result in found.values())
    print(f"engine at least {GOAL_ENGINE:g} × eager for EfficientNet-Lite0: {'reached' if fast else 'MISSED'}")
    print(f"pipeline at least {GOAL_PIPELINE:.0%} of the engine: {'reached' if whole else 'MISSED'}")
    if chosen.json:
        command = f"python benchmarks/inference.py --images {chosen.images} --rounds {chosen.rounds}"
        write_json(chosen.json, {"command": command, **machine(), "backbones": found})


if __name__ == "__main__":
    main()

"""How fast data come in: python benchmarks/loading.py [--data DIR] [--folder DIR]

1. CIFAR-100, all 60,000 images, from the disk into a stream of sessions, in a fresh process. Goal: under 3 s, and no
   more memory than twice the raw pixels (60,000 × 3,072 bytes) at the peak. A busy machine shows in the wall time.
2. Files decoded to 224 × 224: of the folder of images that is named, or of 16 JPEGs of 12 megapixels made for it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RAW = 60_000 * 3 * 32 * 32
SECONDS = 3.0
CHILD = """
import json, resource, sys, time
from masil.data import load
from masil.protocol import PROTOCOLS, sessions

unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
before, start, busy = peak(), time.perf_counter(), time.process_time()
dataset = load("cifar100", sys.argv[1] or None)
stream = list(sessions(PROTOCOLS["cifar100"], dataset))
seconds, after = time.perf_counter() - start, peak()
busy = time.process_time() - busy
print(json.dumps({"seconds": seconds, "busy": busy, "before": before, "after": after,
                  "train": [len(s.train) for s in stream], "test": [len(s.test) for s in stream]}))
"""


def cifar100(data: str, repeats: int) -> None:
    runs = []
    for _ in range(repeats):
        child = subprocess.run([sys.executable, "-c", CHILD, data], capture_output=True, text=True)
        if child.returncode:
            print(f"CIFAR-100 was not loaded: {child.stderr.strip().splitlines()[-1]}")
            return
        runs.append(json.loads(child.stdout))
    print(f"CIFAR-100 into {len(runs[0]['train'])} sessions, {repeats} fresh processes:")
    print(f"  training images {runs[0]['train']}, test images {runs[0]['test']}")
    seconds = [run["seconds"] for run in runs]
    text, busy = ", ".join(f"{s:.2f}" for s in seconds), max(run["busy"] for run in runs)
    judge("time", max(seconds), SECONDS, f"{text} s ({busy:.2f} of the processor)")
    growth = max(run["after"] - run["before"] for run in runs)
    whole = max(run["after"] for run in runs)
    text = f"{growth / 1e6:.0f} MB more at the peak = {growth / RAW:.2f} × raw ({RAW / 1e6:.0f} MB)"
    judge("memory", growth, 2 * RAW, f"{text}; whole process with torch {whole / 1e6:.0f} MB")


def judge(what: str, value: float, goal: float, text: str) -> None:
    print(f"  {what}: {text}: {'within' if value <= goal else 'MISSES'} the goal")


def decoding(folder: Path) -> None:
    from masil.data import Framing, decode_image, frame_image, load, read_square

    images = load(folder, skip_bad=True).train.subset(slice(0, 500))
    n, framing = len(images), Framing(256, 224)
    paths = [Path(folder, images.name(i)) for i in range(n)]
    size = sum(path.stat().st_size for path in paths)
    first = decode_image(paths[0]).size
    print(
        f"{n} files of {folder} ({size / n / 1e3:.0f} kB on average, the first {first[0]} × {first[1]}) to 224 × 224:"
    )

    def one(scaled: bool) -> None:
        for path in paths:
            frame_image(decode_image(path, framing.resize if scaled else None), framing)

    rates = {
        "one thread, whole files": lambda: one(False),
        "one thread, JPEG at a fraction of its size": lambda: one(True),
        "one thread, the fastest decoders": lambda: [read_square(path, framing) for path in paths],
        f"Images.load, {os.cpu_count()} cores": lambda: images.load(slice(None), framing),
        "fingerprint": images.fingerprint,
    }
    for label, run in rates.items():
        start = time.perf_counter()
        run()
        print(f"  {label}: {n / (time.perf_counter() - start):.0f} images/s")


def photos(folder: Path, count: int = 16) -> Path:
    """Make photos of 12 megapixels in two classes: smooth, with noise, so that they compress as photos do."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    for i in range(count):
        shade = Image.fromarray(np.roll(coarse, i, axis=1)).resize((4032, 3024), Image.Resampling.BICUBIC)
        noisy = np.asarray(shade) ^ rng.integers(0, 8, (3024, 4032, 1), dtype=np.uint8)
        path = folder / f"class{i % 2}" / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(noisy).save(path, quality=88)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="folder of data sets; else MASIL_DATA, else the cache")
    parser.add_argument("--folder", type=Path, help="a folder of images to decode")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    cifar100(chosen.data, chosen.repeats)
    if chosen.folder:
        decoding(chosen.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            decoding(photos(Path(folder)))


if __name__ == "__main__":
    main()

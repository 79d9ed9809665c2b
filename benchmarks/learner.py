"""How fast MASIL learns and answers, and what it keeps: python benchmarks/learner.py [--omniglot] [--out FILE]

  fit         `fit` on ready activations of rank 24 with noise (--rows, 512 features, 60 classes) and on those of a
              file (--activations), with and without what confidence needs, beside FeCAM, RanPAC and scikit-learn's
              shrunk LDA on the same rows; and its growth where rows, features or classes are twice as many.
              Times of the processor, all threads together, which other work on the machine lengthens less, and by the
              clock
  photos      `fit` on a folder with a folder of photos for each class (--photos), as a share of their extraction
  session     `learn` of 25 shots, 5 new classes, 95 known, from ready activations (512 and 1,280 features)
  images      the same from 25 photos in memory through EfficientNet-Lite0
  predict     what `predict` adds to the backbone's own time, batches of 64
  memory      bytes that each further class adds
  omniglot    1,200 base classes, then 40 sessions of 10: how the time of a session grows with the classes known
Goals: `fit` at most ten times the time of shrunk LDA, at most a tenth of extraction, and growing no faster than the
rows; a session under 0.2 s from
activations and under 2 s from images; predict adds under 5 %; on Omniglot the time of a session grows no faster than
the number of known classes. Medians over the rounds; Omniglot is found by MASIL_DATA.
"""

import argparse
import math
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from masil import Masil
from masil.backbones import ActivationStore, create, extract, open_engine
from masil.data import Images, data_root, file_images, load
from masil.hardware import cpu_model, usable_cores
from masil.methods import PlainFeCAM, PlainRanPAC, Samples, Task
from masil.protocol import PROTOCOLS, Protocol, sessions
from masil.storage import write_json

GOALS = {"fit": 10.0, "photos": 0.1, "session": 0.2, "images": 2.0, "predict": 0.05}


Seconds = dict[str, dict[str, float]]  # of each piece of work: by the "clock" and of the "processor"


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def both_times(work: Callable[[], object]) -> dict[str, float]:
    busy = time.process_time()
    clock = timed(work)
    return {"clock": clock, "processor": time.process_time() - busy}


def clusters(classes: range, each: int, features: int, seed: int) -> tuple[Tensor, list[int]]:
    """Draw activations around one direction a class."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.rand(classes.stop, features, generator=torch.Generator().manual_seed(0)).pow(4)
    codes = torch.tensor(classes).repeat_interleave(each)
    return (centres[codes] + 0.2 * torch.rand(len(codes), features, generator=draw)), codes.tolist()


def rank_24(rows: int, features: int, classes: int) -> tuple[Tensor, Tensor]:
    """Draw activations of rank 24 with noise, around one mixture a class."""
    draw = torch.Generator().manual_seed(0)
    parts = torch.rand(24, features, generator=draw).pow(3)
    labels = torch.arange(rows) % classes
    mixtures = torch.rand(classes, 24, generator=draw).pow(3)[labels] + 0.5 * torch.rand(rows, 24, generator=draw).pow(
        3
    )
    clean = mixtures @ parts
    return (clean + 0.1 * clean.mean() * torch.randn(rows, features, generator=draw)).clamp_min(0), labels


def fits(x: Tensor, y: Tensor, *, peers: bool = True) -> Seconds:
    """Fit on the same rows [n d] of classes [n], one after the other."""
    works: dict[str, Callable[[], object]] = {
        "masil": lambda: Masil(backbone=None).fit(x, y.tolist()),
        "masil, without confidence": lambda: Masil(backbone=None).fit(x, y.tolist(), confidence=False),
    }
    if peers:
        task = Task(Protocol("rows", "none", base_classes=int(y.max()) + 1, sessions=0, way=1, shot=1))
        roots = x.sqrt().numpy()
        works |= {
            "FeCAM": lambda: PlainFeCAM().fit(Samples(x, labels=y), task),
            "RanPAC": lambda: PlainRanPAC().fit(Samples(x, labels=y), task),
            "shrunk LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(roots, y.numpy()),
        }
    return {name: both_times(work) for name, work in works.items()}


def growth(rows: int) -> dict[str, float]:
    """Give the time of `fit` where one of the three is twice as large, in times of that where none is."""
    sizes = {"rows": (2 * rows, 512, 60), "features": (rows, 1024, 60), "classes": (rows, 512, 120)}

    def busy(size: tuple[int, int, int]) -> float:
        return fits(*rank_24(*size), peers=False)["masil"]["processor"]

    once = busy((rows, 512, 60))
    return {name: busy(size) / once for name, size in sizes.items()}


def say_fit(what: str, seconds: Seconds) -> float:
    """Print the times of `fits`, and give how many times that of shrunk LDA ours is."""
    ratio = seconds["masil"]["processor"] / seconds["shrunk LDA"]["processor"]
    listed = (f"{name} {each['processor']:.2f} ({each['clock']:.2f})" for name, each in seconds.items())
    print(f"fit on {what}, seconds of the processor (by the clock): {', '.join(listed)}")
    print(f"  {ratio:.1f} times shrunk LDA (goal {GOALS['fit']:.0f})")
    return ratio


def share_of_extraction(folder: Path, count: int) -> dict[str, Any]:
    """Extract `count` photos, whole classes, then fit on what came out; shares of processor time and of the clock."""
    files = sorted(folder.glob("*/*.jpg"))[:count]
    names = [file.parent.name for file in files]
    images = file_images(folder, [str(file.relative_to(folder)) for file in files])
    backbone = create("efficientnet_lite0", weights="imagenet")
    extract(backbone, images.subset(slice(0, 8)), device="cpu")  # the graph is traced
    rows: list[Tensor] = []
    looking = both_times(lambda: rows.append(extract(backbone, images, device="cpu")))
    fitting = both_times(lambda: Masil(backbone=None).fit(rows[0], names))
    share = {name: fitting[name] / looking[name] for name in looking}
    print(
        f"{len(images)} photos of {folder}: extraction {looking['processor']:.1f} s of the processor, fit "
        f"{fitting['processor']:.1f} s, {100 * share['processor']:.0f} % of it (goal {100 * GOALS['photos']:.0f} %); "
        f"by the clock {looking['clock']:.1f} s, {fitting['clock']:.1f} s, {100 * share['clock']:.0f} %"
    )
    return {"images": len(images), "extraction": looking, "fit": fitting, "share": share}


def session(features: int, rounds: int) -> dict[str, float]:
    """Teach 5 classes beside 95, again and again."""
    model = Masil(backbone=None).fit(*clusters(range(95), 50, features, 1))
    shots = clusters(range(95, 100), 5, features, 2)
    seconds = []
    for _ in range(rounds):
        seconds.append(timed(lambda: model.learn(*shots)))
        model.undo()
    return {"seconds": statistics.median(seconds), "bytes_per_class": model.memory_.bytes_per_class}


def from_images(rounds: int) -> dict[str, float]:
    """Teach from photos, and compare `predict` with the engine alone."""
    random = np.random.default_rng(0)
    photos = random.integers(0, 256, (64, 224, 224, 3), dtype=np.uint8)
    model = Masil().fit(photos[:40], [str(i % 10) for i in range(40)])
    new = [f"new {i % 5}" for i in range(25)]
    learning, ratios = [], []
    engine = open_engine(create("efficientnet_lite0", weights="imagenet"), device="cpu")
    pixels = torch.from_numpy(photos.transpose(0, 3, 1, 2).copy())
    engine.run(pixels), model.predict(photos)
    for _ in range(rounds):
        learning.append(timed(lambda: model.learn(photos[:25], new)))
        model.undo()
        bare = timed(lambda: engine.run(pixels))
        ratios.append(timed(lambda: model.predict(photos)) / bare - 1)
    return {"learn_seconds": statistics.median(learning), "predict_adds": statistics.median(ratios)}


def omniglot() -> dict[str, Any]:
    """Play all 40 sessions on Lite0's activations, timing each; the exponent is that of known classes in its time."""
    shape = PROTOCOLS["omniglot"]
    backbone, store = create("efficientnet_lite0", weights="imagenet"), ActivationStore()

    def activations(images: Images) -> Tensor:
        return store.get(backbone, images)

    model = Masil(backbone=None)
    learn, predict, known = [], [], []
    for part in sessions(shape, load("omniglot"), 0):
        shots, names = activations(part.train), part.train.labels.tolist()
        if part.number == 0:
            base = timed(lambda shots=shots, names=names: model.fit(shots, names))
            continue
        known.append(len(model.classes_))
        learn.append(timed(lambda shots=shots, names=names: model.learn(shots, names)))
        asked = shots[torch.arange(1000) % len(shots)]
        predict.append(timed(lambda asked=asked: model.predict(asked)))
    tested = activations(part.test)
    accuracy = float((torch.as_tensor(model.predict(tested)) == part.test.labels).float().mean())
    return {
        "fit_seconds": base,
        "first_seconds": statistics.median(learn[:5]),
        "last_seconds": statistics.median(learn[-5:]),
        "exponent": math.log(statistics.median(learn[-5:]) / statistics.median(learn[:5]))
        / math.log(known[-3] / known[2]),
        "predict_1000_seconds": statistics.median(predict[-5:]),
        "accuracy_of_1600": accuracy,
        "memory_bytes": model.memory_.nbytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", type=int, default=30_000, help="of `fit`")
    parser.add_argument(
        "--activations", type=Path, help="also fit on those of this .npz file: activations [n d], labels [n] from 0 on"
    )
    photos = data_root() / "CUB_200_2011" / "images"
    parser.add_argument("--photos", type=Path, default=photos, help="a folder with a folder of photos for each class")
    parser.add_argument("--images", type=int, default=3000, help="of those photos")
    parser.add_argument("--omniglot", action="store_true", help="also the 1,600 classes")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    found: dict[str, Any] = {"processor": cpu_model(), "cores": usable_cores(), "python": platform.python_version()}
    found["fit"] = fits(*rank_24(args.rows, 512, 60))
    found["fit_over_lda"] = say_fit(f"{args.rows:,} x 512 of rank 24", found["fit"])
    if args.activations:
        with np.load(args.activations) as rows:
            x, y = torch.from_numpy(rows["activations"]), torch.from_numpy(rows["labels"])
        found["fit_on_file"] = fits(x, y)
        found["fit_on_file_over_lda"] = say_fit(args.activations.name, found["fit_on_file"])
    found["growth"] = growth(args.rows // 4)
    twice = ", ".join(f"{factor:.2f} with twice the {name}" for name, factor in found["growth"].items())
    print(f"  times those of {args.rows // 4:,} rows: {twice}")
    if any(args.photos.glob("*/*.jpg")):
        found["photos"] = share_of_extraction(args.photos, args.images)
    else:
        print(
            f"fit on photos was not measured: no folder of {args.photos} has .jpg files; name another one with --photos"
        )
    for features in (512, 1280):
        found[f"session_{features}"] = one = session(features, args.rounds)
        print(
            f"session, {features} features: {1e3 * one['seconds']:.1f} ms (goal {1e3 * GOALS['session']:.0f}), "
            f"{one['bytes_per_class']:,} bytes a class"
        )
    found["images"] = one = from_images(args.rounds)
    print(f"session from 25 photos: {one['learn_seconds']:.2f} s (goal {GOALS['images']})")
    print(f"predict adds {100 * one['predict_adds']:.1f} % to the engine (goal {100 * GOALS['predict']:.0f} %)")
    if args.omniglot:
        found["omniglot"] = one = omniglot()
        print(
            f"omniglot: fit {one['fit_seconds']:.1f} s; sessions {1e3 * one['first_seconds']:.1f} ms first, "
            f"{1e3 * one['last_seconds']:.1f} ms last, growing as classes^{one['exponent']:.2f} (goal <= 1); "
            f"1,000 predictions {1e3 * one['predict_1000_seconds']:.0f} ms; {100 * one['accuracy_of_1600']:.1f} % of "
            f"1,600 classes right"
        )
    if args.out:
        write_json(args.out, found)


if __name__ == "__main__":
    main()

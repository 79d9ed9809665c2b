"""How fast the base session trains: python benchmarks/training.py [--compile] [--layers] [--accuracy MINUTES]

For each image size, the same network three ways, in rounds that take turns so that a busy machine disturbs all alike:
  usual  the loop one writes first: float32, NCHW, images augmented one by one with Pillow in a DataLoader, SGD
  bare   the network's convolutions alone, forward and backward, channels-last: what PyTorch itself cannot go below
  ours   `masil.training` with the recipe cifar100-fast: batches augmented at once, channels-last, Muon, Winograd
Goals: ours >= 90 % of bare and >= 2 × usual in float32. Figures are medians over the rounds, ratios within a round. The
same ratios in processor time, all processes counted, say what holds when others work on the machine.

With --layers, every kind of 3 × 3 convolution of ResNet-18 on maps of 2 to 16 px is timed instead, there and back,
PyTorch's own beside the forms of `masil.training.convolution`, in float32 and in bfloat16.

With --accuracy, the usual loop and ours train on the base classes of CIFAR-100 for that many minutes each, and accuracy
on held-out training images is given against wall time.
"""

import argparse
import itertools
import json
import logging
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from masil.backbones import create
from masil.data import ArraySource, Images, array_images, load
from masil.hardware import cpu_model, set_threads, usable_cores
from masil.protocol import PROTOCOLS, sessions
from masil.storage import write_json
from masil.training import RECIPES, Monitoring, Recipe, train
from masil.training.batches import Batches
from masil.training.compute import ComputeSettings, World
from masil.training.convolution import SmallMapConv2d
from masil.training.session import TrainingRun

CPU = torch.device("cpu")
GOAL_BARE, GOAL_USUAL = 0.9, 2.0
CLASSES = 60


@dataclass
class Pace:
    """How fast: images per wall second, and processor milliseconds per image, all processes counted."""

    rate: float
    busy: float


class Clock:
    """Wall and processor time between its start and its stops."""

    def __init__(self) -> None:
        self.wall = self.busy = 0.0

    def __enter__(self) -> Self:
        self.start, self.before = time.perf_counter(), self._processor()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self.start
        self.busy += self._processor() - self.before

    def pace(self, n: int) -> Pace:
        """Give the pace at which n images were worked on."""
        return Pace(n / self.wall, 1e3 * self.busy / n)

    @staticmethod
    def _processor() -> float:
        """Give the time of this process and of those children that have ended."""
        return time.process_time() + os.times().children_user + os.times().children_system


class Way(Protocol):
    """One way to train."""

    def epoch(self) -> Pace:
        """Train for an epoch."""


class OneByOne(Dataset[tuple[Tensor, int]]):
    """Images augmented one at a time with Pillow, as in most training scripts."""

    def __init__(self, pixels: np.ndarray, labels: Tensor, px: int, seed: int = 0) -> None:
        self.pixels, self.labels, self.px = pixels.transpose(0, 2, 3, 1), labels, px
        self.draw = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        padded = np.pad(self.pixels[position], ((4, 4), (4, 4), (0, 0)), mode="reflect")
        top, left = self.draw.integers(0, 9, 2)
        image = Image.fromarray(padded[top : top + 32, left : left + 32])
        if self.draw.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            image = enhance(image).enhance(self.draw.uniform(0.6, 1.4))
        array = np.asarray(image.resize((self.px, self.px), Image.Resampling.BILINEAR), np.float32) / 255
        return torch.from_numpy((array.transpose(2, 0, 1) - 0.48) / 0.26), int(self.labels[position])


class Usual:
    """The usual loop."""

    def __init__(self, pixels: np.ndarray, labels: Tensor, px: int, batch: int) -> None:
        self.loader = DataLoader(
            OneByOne(pixels, labels, px), batch, shuffle=True, drop_last=True, num_workers=usable_cores()
        )
        self.backbone = create("resnet18_cifar").train().requires_grad_(True)
        self.model = nn.Sequential(self.backbone, nn.Linear(self.backbone.features, CLASSES))
        self.optimiser = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def epoch(self) -> Pace:
        """Train for an epoch."""
        self.model.train()
        seen = 0
        with Clock() as clock:
            for x, y in self.loader:
                self.optimiser.zero_grad()
                functional.cross_entropy(self.model(x), y).backward()
                self.optimiser.step()
                seen += len(y)
        return clock.pace(seen)


class Ours:
    """masil's session, at one size for as long as it takes."""

    def __init__(self, images: Images, px: int, batch: int, compiled: bool, folder: Path) -> None:
        recipe = replace(RECIPES["cifar100-fast"], stages=((1000, px),), batch=batch, watch=Monitoring(nc_every=0))
        settings = ComputeSettings("cpu", "float32", compiled, torch.get_num_threads(), 1, torch.__version__)
        batches = Batches(images, recipe, 32, CPU)
        self.session = TrainingRun(create("resnet18_cifar"), batches, folder, settings=settings, world=World())
        self.session.save = lambda: None  # type: ignore[method-assign]  # an epoch here is a step or two

    def epoch(self) -> Pace:
        """Train for an epoch."""
        with Clock() as clock:
            self.session.run_epoch(lambda _: None, 0)
        return clock.pace(self.session.batches.steps * self.session.batches.batch)


class Bare:
    """The convolutions, one after the other."""

    def __init__(self, px: int, batch: int) -> None:
        self.batch = batch
        self.layers: list[tuple[nn.Conv2d, tuple[int, ...]]] = []
        network = create("resnet18_cifar").requires_grad_(True).to(memory_format=torch.channels_last)
        hooks = [
            layer.register_forward_hook(lambda conv, given, _: self.layers.append((conv, given[0].shape[1:])))
            for layer in network.modules()
            if isinstance(layer, nn.Conv2d)
        ]
        with torch.no_grad():
            network(torch.zeros(1, 3, px, px))
        for hook in hooks:
            hook.remove()

    def epoch(self) -> Pace:
        """Run every convolution forward and backward once."""
        clock = Clock()
        for layer, shape in self.layers:
            x = torch.randn(self.batch, *shape).contiguous(memory_format=torch.channels_last)
            x.requires_grad_(shape[0] > 3)  # nobody needs the gradient of the image
            pull = torch.randn_like(layer(x))
            with clock:
                layer(x).backward(pull)
            layer.weight.grad = None
        return clock.pace(self.batch)


def ratio(taken: list[dict[str, Pace]], other: str) -> tuple[float, float]:
    """Give how many times as fast ours is, by the wall and by the processor, medians over the rounds."""
    wall = statistics.median(one["ours"].rate / one[other].rate for one in taken)
    return wall, statistics.median(one[other].busy / one["ours"].busy for one in taken)


def speed(px: int, batch: int, steps: int, rounds: int, compiled: bool) -> dict[str, Any]:
    """Time the three ways at one size, `rounds` times in turn, each warmed up once."""
    draw = np.random.default_rng(0)
    labels = torch.arange(steps * batch) % CLASSES
    pixels = draw.integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Way] = {
            "usual": Usual(pixels, labels, px, batch),
            "bare": Bare(px, batch),
            "ours": Ours(array_images(pixels, labels), px, batch, compiled=compiled, folder=Path(folder)),
        }
        for way in ways.values():
            way.epoch()
        taken = [{name: way.epoch() for name, way in ways.items()} for _ in range(rounds)]
    return {
        "pixels": px,
        "images_per_second": {name: statistics.median(one[name].rate for one in taken) for name in ways},
        "processor_ms_per_image": {name: statistics.median(one[name].busy for one in taken) for name in ways},
        "ours_over_usual": ratio(taken, "usual"),  # by the wall, by the processor
        "ours_over_bare": ratio(taken, "bare"),
        "rounds": [{name: asdict(pace) for name, pace in one.items()} for one in taken],
    }


def layers(batch: int, rounds: int) -> list[dict[str, object]]:
    """Time one convolution after the other in every form, in processor milliseconds, the best of the rounds."""
    rows = []
    shapes = [(128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    for (c, o, stride), size, cast in itertools.product(shapes, (2, 3, 4, 6, 8, 16), (torch.float32, torch.bfloat16)):
        layer = SmallMapConv2d(nn.Conv2d(c, o, 3, stride, 1, bias=False)).to(memory_format=torch.channels_last)
        x = torch.randn(batch, c, size, size).contiguous(memory_format=torch.channels_last).requires_grad_()
        best = dict.fromkeys(layer.forms(size, cast), float("inf"))
        for _, form in itertools.product(range(rounds + 1), best):
            with Clock() as clock, torch.autocast("cpu", torch.bfloat16, enabled=cast == torch.bfloat16):
                y = layer.compute(x.to(cast), form)
                torch.autograd.grad(y, (x, layer.weight), y.detach())
            best[form] = min(best[form], 1e3 * clock.busy)
        kind = str(cast).removeprefix("torch.")
        rows.append({"channels": [c, o], "size": size, "stride": stride, "precision": kind, **best})
        times = ", ".join(f"{form} {time_:.1f} ms" for form, time_ in best.items())
        print(f"  {c:3d} → {o:3d}, {size:2d} × {size:2d}, stride {stride}, {kind}: {times}", flush=True)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print("\n        images per second             ours / usual        ours / bare")
    print("  px    usual     bare     ours      wall  processor     wall  processor")
    for row in rows:
        rates = " ".join(f"{row['images_per_second'][name]:8.1f}" for name in ("usual", "bare", "ours"))
        usual, bare = row["ours_over_usual"], row["ours_over_bare"]
        ratios = f"{usual[0]:7.2f} × {usual[1]:7.2f} ×   {100 * bare[0]:6.0f} % {100 * bare[1]:7.0f} %"
        met = usual[0] >= GOAL_USUAL and bare[0] >= GOAL_BARE
        print(f"  {row['pixels']:2d} {rates}  {ratios}   {'meets the goals' if met else 'MISSES A GOAL'}")


def base_images(data: str | None) -> Images:
    """Give the base session of CIFAR-100."""
    return next(iter(sessions(PROTOCOLS["cifar100"], load("cifar100", data)))).train


def accuracy_usual(images: Images, minutes: float, holdout: int) -> Iterator[tuple[float, float]]:
    """Train the usual loop at 32 px, cosine over as many epochs as fit, and yield (seconds, held-out accuracy)."""
    kept, held = split(images, holdout)
    usual = Usual(kept.source.pixels[kept.rows.numpy()], kept.labels, 32, 128)
    seconds, epoch = 0.0, 0
    share = 0.0
    while share < 1:
        for group in usual.optimiser.param_groups:
            group["lr"] = 0.1 * (1 + np.cos(np.pi * share)) / 2
        start = time.perf_counter()
        usual.epoch()
        seconds, epoch = seconds + time.perf_counter() - start, epoch + 1
        share = seconds * (epoch + 1) / epoch / (60 * minutes)
        yield seconds, held_out_accuracy(usual.model, held)


def split(images: Images, holdout: int) -> tuple[Images, Images]:
    """Hold the last images of each class out."""
    last = torch.cat([(images.labels == label).nonzero().flatten()[-holdout:] for label in range(CLASSES)])
    kept = torch.ones(len(images), dtype=torch.bool)
    kept[last] = False
    return images.subset(kept.nonzero().flatten()), images.subset(last)


@torch.no_grad()
def held_out_accuracy(model: nn.Module, images: Images) -> float:
    """Give the accuracy on images as they are."""
    model.eval()
    x = (torch.from_numpy(images.source.pixels[images.rows.numpy()]).float() / 255 - 0.48) / 0.26
    found = torch.cat([model(part).argmax(1) for part in torch.split(x, 256)])
    return float((found == images.labels).double().mean())


def accuracy_ours(images: Images, minutes: float, holdout: int, rates: dict[int, float]) -> list[tuple[float, float]]:
    """Train cifar100-fast, its stages shortened to fit the time; give (seconds, held-out accuracy) of each epoch."""
    recipe = RECIPES["cifar100-fast"]
    n = len(images) - CLASSES * holdout
    whole = sum(epochs * n / rates[px] for epochs, px in recipe.stages)
    stages = tuple((max(1, round(epochs * 60 * minutes / whole)), px) for epochs, px in recipe.stages)
    short: Recipe = replace(recipe, stages=stages, watch=Monitoring(holdout=holdout, nc_every=0))
    print(f"  stages {stages}")
    with tempfile.TemporaryDirectory() as folder:
        history = train(images, short, folder, device="cpu").history
    seconds = np.cumsum([n / row["images_per_second"] for row in history])
    return [(float(time_), float(row["accuracy"])) for time_, row in zip(seconds, history, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, nargs="+", default=[16, 24, 32])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2, help="of an epoch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="let ours be compiled, as long runs are")
    parser.add_argument("--layers", action="store_true", help="time single convolutions instead")
    parser.add_argument("--accuracy", type=float, metavar="MINUTES", help="train for real, this long each way")
    parser.add_argument("--data", help="folder of CIFAR-100 (default: MASIL_DATA)")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    threads = set_threads()
    load_before = os.getloadavg()[0] / usable_cores() if hasattr(os, "getloadavg") else None
    if given.layers:
        times = layers(given.batch, given.rounds)
        if given.out:
            write_json(given.out, times)
        return
    rows = []
    for px in given.pixels:
        rows.append(speed(px, given.batch, given.steps, given.rounds, compiled=given.compile))
        print(json.dumps({key: rows[-1][key] for key in ("pixels", "images_per_second")}), flush=True)
    show(rows)
    software = f"torch {torch.__version__}, {platform.system()}"
    result: dict[str, object] = {
        "machine": f"{cpu_model()}, {usable_cores()} cores, {threads} threads, {software}",
        "load_per_core_before": load_before,
        "settings": {key: getattr(given, key) for key in ("batch", "steps", "rounds", "compile")},
        "speed": rows,
    }
    print(f"\n  {result['machine']}; load per core before: {load_before}")
    if given.accuracy:
        images = base_images(given.data)
        assert isinstance(images.source, ArraySource)
        rates = {int(row["pixels"]): float(row["images_per_second"]["ours"]) for row in rows}
        curves = {
            "usual": list(accuracy_usual(images, given.accuracy, 50)),
            "ours": accuracy_ours(images, given.accuracy, 50, rates),
        }
        for name, curve in curves.items():
            print(f"  {name}: " + ", ".join(f"{100 * right:.1f} % at {seconds:.0f} s" for seconds, right in curve))
        result["accuracy"] = curves
    if given.out:
        write_json(given.out, result)


if __name__ == "__main__":
    main()

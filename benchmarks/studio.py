"""The studio under load: python benchmarks/studio.py [--people 200] [--rounds 3] [--out FILE]

A real `masil serve` with EfficientNet-Lite0 on pictures drawn here. `people` ask at the same moment, each with one
photo, while one teaches class after class of five photos and takes every other one back. Goals: no error, no answer by
a model that never was (an answer's revision says which classes there were), and a class taught within a second when
nobody else asks.
"""

import argparse
import asyncio
import io
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from masil.hardware import cpu_model, usable_cores
from masil.learner import Masil
from masil.storage import write_json

SIDE, BASE, SHOTS = 640, 6, 5
MOST = 60  # lessons under load; half of them are undone, so that all classes fit into one answer


def drawn(kind: int, seed: int) -> Image.Image:
    """Squares of colours of their own for each kind, moved and noisy for each seed."""
    coarse = np.random.default_rng(kind).integers(0, 255, (5, 5, 3)).astype(np.uint8)
    draw = np.random.default_rng([kind, seed])
    pixels = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.NEAREST)).astype(float)
    pixels = np.roll(pixels, tuple(draw.integers(-60, 60, 2)), (0, 1)) + draw.normal(0, 20, (SIDE, SIDE, 1))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def photo(kind: int, seed: int) -> tuple[str, tuple[str, bytes]]:
    file = io.BytesIO()
    drawn(kind, seed).save(file, "JPEG", quality=90)
    return "images", (f"{seed}.jpg", file.getvalue())


async def ask(client: httpx.AsyncClient, kind: int, sent: tuple[str, tuple[str, bytes]]) -> dict[str, Any]:
    start = time.perf_counter()
    answer = await client.post("/api/predict", files=[sent], data={"top": "50"})
    seconds = time.perf_counter() - start
    return {"kind": kind, "status": answer.status_code, "seconds": seconds, "answer": answer.json()}


async def teach(client: httpx.AsyncClient, kind: int, classes: dict[int, set[str]]) -> float:
    """Teach a class, and give the seconds it took; every other one is undone."""
    sent = [photo(kind, seed) for seed in range(SHOTS)]
    start = time.perf_counter()
    learnt = (await client.post("/api/learn", files=sent, data={"name": f"new {kind}"})).raise_for_status().json()
    seconds = time.perf_counter() - start
    classes[learnt["revision"]] = classes[learnt["revision"] - 1] | {learnt["label"]}
    if kind % 2:
        undone = (await client.post("/api/undo")).raise_for_status().json()
        classes[undone["revision"]] = classes[undone["revision"] - 1] - {learnt["label"]}
    return seconds


async def load(where: str, people: int, rounds: int) -> dict[str, Any]:
    classes = {1: {f"kind {kind}" for kind in range(BASE)}}
    pool = httpx.Limits(max_connections=people + 2)
    async with httpx.AsyncClient(base_url=where, timeout=600, limits=pool) as client:
        alone = [await teach(client, 100 + turn, classes) for turn in range(4)]
        sent = [(kind % BASE, photo(kind % BASE, 50 + kind)) for kind in range(people)]
        busy: list[float] = []
        start = time.perf_counter()
        asking = asyncio.gather(*(ask(client, kind, each) for kind, each in sent for _ in range(rounds)))
        while not asking.done() and len(busy) < MOST:
            busy.append(await teach(client, 200 + len(busy), classes))
        answers = await asking
        seconds = time.perf_counter() - start
    good = [each for each in answers if each["status"] == 200]
    mixed = sum({share["label"] for share in top(each)} != classes[each["answer"]["revision"]] for each in good)
    waits = sorted(each["seconds"] for each in good)
    return {
        "people": people,
        "predictions": len(answers),
        "errors": len(answers) - len(good),
        "wrong_model": mixed,
        "right": sum(top(each)[0]["label"] == f"kind {each['kind']}" for each in good) / len(good),
        "revisions_seen": len({each["answer"]["revision"] for each in good}),
        "predictions_per_second": len(answers) / seconds,
        "wait_median": statistics.median(waits),
        "wait_95": waits[int(0.95 * len(waits))],
        "lessons_under_load": len(busy),
        "learn_alone_median": statistics.median(alone),
        "learn_under_load_median": statistics.median(busy),
    }


def top(each: dict[str, Any]) -> list[dict[str, Any]]:
    shares: list[dict[str, Any]] = each["answer"]["predictions"][0]["top"]
    return shares


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--people", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kinds.masil"
        pictures = [drawn(kind, seed) for kind in range(BASE) for seed in range(12)]
        Masil(concepts=16).fit(pictures, [f"kind {kind}" for kind in range(BASE) for _ in range(12)]).save(path)
        command = [sys.executable, "-m", "masil", "serve", str(path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio:
            assert studio.stdout is not None
            where = next(word for word in studio.stdout.readline().split() if word.startswith("http"))
            try:
                found = asyncio.run(load(where, chosen.people, chosen.rounds))
            finally:
                studio.terminate()
    found |= {"processor": cpu_model(), "cores": usable_cores(), "python": platform.python_version()}
    for name, value in found.items():
        print(f"{name:26} {value:.3f}" if isinstance(value, float) else f"{name:26} {value}")
    if chosen.out:
        write_json(chosen.out, found)
    if found["errors"] or found["wrong_model"]:
        sys.exit(1)


if __name__ == "__main__":
    main()

"""How fast concepts are found, beside every peer that is installed: python benchmarks/concepts.py [--out FILE]

Each contestant runs in a process of its own, on the same activations with the same number of threads.
1. NNLS of 10,000 rows: time to a KKT residual of 1e-5. Goal: ten times as fast as scipy row by row, and as
   scikit-learn's transform.
2. NMF: time to the objective that scikit-learn's coordinate descent has after 200 iterations. Goal: at most a third of
   its time, and no peer faster.
3. With --scaling: NMF from 3,000 rows to 300,000. Goal: time grows linearly.
4. With --out-of-core ROWS: NMF of a memory-mapped file. Goal: 3,000,000 × 512 under 2 GB.
5. With --limits: a pass of NMF, and NNLS, in times of their bare matrix products (goal: at most 1.5), and NMF on easy
   data beside scikit-learn (goal: five times as fast). With --processor, in time of the processor, all threads
   together, which other work on the machine lengthens less.
6. With --busy: the same beside two busy processes (goal: at most three times the quiet time).

The activations are those of a file (--activations), of crops of a data set under MASIL_DATA (--data cifar100 or
cub200, ImageNet ResNet-18), or a stand-in: a product of sparse non-negative factors with noise, cut off at zero.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from concepts_peers import EXACT, NMF, NNLS, Array, objective

KKT = 1e-5


def stand_in(target: Path, n: int, d: int, dtype: str = "float32") -> Path:
    """Write activations [n d] of rank 96 with noise, about half of them zero, block by block."""
    draw = np.random.default_rng(0)
    Q = np.maximum(draw.standard_normal((96, d), np.float32) - 0.5, 0)
    out = np.lib.format.open_memmap(target, "w+", dtype, (n, d))
    for start in range(0, n, 1 << 14):
        m = min(1 << 14, n - start)
        P = np.maximum(draw.standard_normal((m, 96), np.float32) - 1, 0)
        out[start : start + m] = np.maximum(P @ Q + draw.standard_normal((m, d), np.float32) - 0.5, 0)
    out.flush()
    return target


def of_data_set(name: str, n: int) -> Path:
    """Extract activations of random crops once, and keep them in the cache."""
    import torch

    from masil.backbones import create, extract
    from masil.data import Framing, data_root, load, random_crops
    from masil.storage import cache_folder

    target = cache_folder("benchmarks", f"{name}-{n}.npy")
    if not target.exists():
        base, framing, side = {"cifar100": (60, Framing(64, 64), 36), "cub200": (100, Framing(256, 224), 64)}[name]
        backbone = create("resnet18", weights=data_root() / "weights" / "resnet18_imagenet.safetensors")
        images = load(name).train
        images = images.subset((images.labels < base).nonzero()[:, 0])
        cut = random_crops(images, framing, -(-n // len(images)), side, seed=0)
        some = torch.randperm(len(cut), generator=torch.Generator().manual_seed(0))[:n].sort().values
        target.parent.mkdir(parents=True, exist_ok=True)
        np.save(target, extract(backbone, cut.subset(some), framing=framing).numpy())
    return target


def given(file: Path, folder: Path) -> Path:
    if file.suffix != ".safetensors":
        return file
    from safetensors.numpy import load_file

    target = folder / "given.npy"
    np.save(target, next(iter(load_file(file).values())))
    return target


def kkt_residual(A: Array, P: Array, Q: Array) -> float:
    """The worst row's max_j |min(p_j, g_j)| beside its size, for concepts scaled to unit length."""
    A, P, Q = (matrix.astype(float) for matrix in (A, P, Q))
    length = np.linalg.norm(Q, axis=1)
    f, p, g = A @ Q.T / length, P * length, (P @ Q - A) @ Q.T / length
    size = np.maximum(np.abs(f), p).max(1)
    return float((np.abs(np.minimum(p, g)).max(1) / np.where(size > 0, size, 1)).max())


def reach(
    run: Callable[[int], Any], score: Callable[[Any], float], goal: float, limit: int, budget: float
) -> dict[str, Any]:
    """Find how many iterations reach the goal, and their time: twice as many until they do, then by bisection.

    The bisection ends after `budget` seconds; without a budget, `limit` iterations are timed.
    """

    def attempt(iterations: int) -> dict[str, Any]:
        start, busy = time.perf_counter(), time.process_time()
        found = run(iterations)
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
        value = score(found)
        return {
            "iterations": iterations, "seconds": seconds, "processor": busy, "score": value, "reached": value <= goal
        }  # fmt: skip

    begun, low, tried = time.perf_counter(), 0, attempt(min(8, limit) if budget else limit)
    while not tried["reached"] and tried["iterations"] < limit:
        low = tried["iterations"]
        tried = attempt(min(2 * low, limit))
    best = tried
    while best["reached"] and best["iterations"] - low > max(1, best["iterations"] // 16):
        if time.perf_counter() - begun > budget:
            break
        tried = attempt((low + best["iterations"]) // 2)
        if tried["reached"]:
            best = tried
        else:
            low = tried["iterations"]
    return best


def peak_memory() -> int:
    """The most memory this process has had resident, in bytes."""
    if (status := Path("/proc/self/status")).exists():
        return 1024 * int(next(line for line in status.read_text().splitlines() if "VmHWM" in line).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Let the peak begin from here, where the system can: imports have peaks of their own."""
    if (switch := Path("/proc/self/clear_refs")).exists():
        switch.write_text("5")


def child(task: dict[str, Any]) -> dict[str, Any]:
    """Run one contestant on one task, in this process."""
    A = np.load(task["file"], mmap_mode="r")[: task["rows"]]
    if task["kind"] == "out of core":
        return out_of_core(A, task)
    A = np.array(A)
    peers = NMF if task["kind"] == "nmf" else NNLS
    try:
        call = peers[task["name"]]()
    except ImportError as error:
        return {"missing": f"not installed ({error})"}
    extra = task["v"] if task["kind"] == "nmf" else np.load(task["concepts"])
    call(A[:1000], extra, 2)  # whatever happens only once
    forget_peak()
    before = peak_memory()
    budget = task.get("budget", 0.0)
    if task["kind"] == "nmf":
        found = reach(
            lambda k: call(A, extra, k), lambda f: objective(A, *f), task.get("goal", 0), task["limit"], budget=budget
        )
    else:
        budget = 0.0 if task["name"] in EXACT else budget
        found = reach(
            lambda k: call(A, extra, k), lambda P: kkt_residual(A, P, extra), KKT, task["limit"], budget=budget
        )
    if task["kind"] == "nnls" and task["name"] in EXACT:
        found["iterations"] = "-"
    return found | {"memory": peak_memory() - before}


def out_of_core(A: Array, task: dict[str, Any]) -> dict[str, Any]:
    from masil.concepts import nmf

    start = time.perf_counter()
    found = nmf(A, task["v"], max_iterations=task["limit"], tol=0, coefficients=False)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "iterations": found.iterations, "score": found.relative_error, "memory": peak_memory()}


def ask(*, patience: float | None = None, **task: Any) -> dict[str, Any]:
    """Run one contestant in a fresh process, for `patience` seconds at most."""
    command = [sys.executable, __file__, "--child", json.dumps(task)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return {"missing": f"not there after {patience:.0f} s"}
    if done.returncode:
        return {"missing": f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1][:90]}"}
    return json.loads(done.stdout.splitlines()[-1])


def table(title: str, results: dict[str, dict[str, Any]], what: str) -> None:
    print(f"\n{title}\n{'':28}{'seconds':>10}{'× masil':>9}{'iterations':>12}{what:>14}{'memory':>10}")
    own = results["masil"].get("seconds", float("nan"))
    for name, found in results.items():
        if "missing" in found:
            print(f"{name:28}{found['missing']}")
            continue
        sign = "" if found["reached"] else ">"
        print(
            f"{name:28}{sign + format(found['seconds'], '.2f'):>10}{sign + format(found['seconds'] / own, '.1f'):>9}"
            f"{found['iterations']:>12}{found['score']:>14.6g}{found['memory'] / 1e6:>7.0f} MB",
            flush=True,
        )


def chosen(peers: Iterable[str], only: list[str]) -> list[str]:
    return [name for name in peers if name == "masil" or not only or any(part in name for part in only)]


def compare_nmf(file: Path, rows: int, v: int, iterations: int, only: list[str]) -> dict[str, dict[str, Any]]:
    task = {"kind": "nmf", "file": str(file), "rows": rows, "v": v}
    standard = ask(name="scikit-learn, cd", limit=iterations, **task)
    if "missing" in standard:
        sys.exit(f"NMF is measured against scikit-learn's coordinate descent, which is {standard['missing']}.")
    standard["reached"] = True
    task |= {"goal": standard["score"] * (1 + 1e-6), "budget": max(10.0, 3 * standard["seconds"])}
    patience = 60 + 5 * standard["seconds"]
    others = [name for name in chosen(NMF, only) if name != "scikit-learn, cd"]
    results = {name: ask(patience=patience, name=name, limit=iterations, **task) for name in others}
    return {"masil": results.pop("masil"), "scikit-learn, cd": standard} | results


def compare_nnls(file: Path, rows: int, v: int, folder: Path, only: list[str]) -> dict[str, dict[str, Any]]:
    A = np.array(np.load(file, mmap_mode="r")[:rows])
    concepts = folder / "concepts.npy"
    np.save(concepts, NMF["masil"]()(A, v, 30)[1])
    task = {"kind": "nnls", "file": str(file), "rows": rows, "concepts": str(concepts), "limit": 2000, "budget": 60.0}
    return {name: ask(patience=600, name=name, **task) for name in chosen(NNLS, only)}


def scaling(file: Path, v: int) -> dict[str, dict[str, Any]]:
    total = len(np.load(file, mmap_mode="r"))
    sizes = [n for n in (3_000, 10_000, 30_000, 100_000, 300_000) if n <= total]
    task = {"kind": "nmf", "name": "masil", "file": str(file), "v": v, "limit": 20}
    results = {str(n): ask(rows=n, **task) for n in sizes}
    print("\nNMF, 20 iterations")
    for n, found in results.items():
        print(f"{n:>10} rows {found['seconds']:8.2f} s {1e6 * found['seconds'] / int(n):8.1f} µs a row")
    if len(sizes) > 1:
        slope = np.polyfit(np.log(sizes), np.log([found["seconds"] for found in results.values()]), 1)[0]
        print(f"time grows as rows^{slope:.2f}")
    return results


def larger_than_memory(rows: int, v: int, dtype: str, iterations: int) -> dict[str, dict[str, Any]]:
    size = rows * 512 * np.dtype(dtype).itemsize
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < 1.2 * size:
            sys.exit(f"{size / 1e9:.1f} GB are needed in {folder}, and fewer are free.")
        file = stand_in(Path(folder) / "rows.npy", rows, 512, dtype)
        print(f"\nNMF out of core, {dtype} × 512 features, P not held, peak memory of the whole process")
        for n in (rows // 10, rows):
            found = ask(kind="out of core", file=str(file), rows=n, v=v, limit=iterations)
            results[str(n)] = found
            print(
                found.get("missing")
                or f"{n:>10} rows = {n * size // rows / 1e9:5.2f} GB: {found['memory'] / 1e9:5.2f} GB, "
                f"{found['seconds']:.0f} s for {found['iterations']} iterations, relative error {found['score']:.4f}",
                flush=True,
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--activations", type=Path, help=".npy or .safetensors, float32 [n d]")
    parser.add_argument("--data", choices=["cifar100", "cub200"])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--concepts", type=int, help="64, or 72 for cub200")
    parser.add_argument("--iterations", type=int, default=200, help="of scikit-learn's coordinate descent")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--skip", nargs="*", default=[], choices=["nnls", "nmf"])
    parser.add_argument("--only", nargs="*", default=[], help="peers, by parts of their names")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--out-of-core", type=int, metavar="ROWS")
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--processor", action="store_true", help="--limits in time of the processor")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--dtype", default="float16", help="of the file that is made for --out-of-core")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(options.threads)
    v = options.concepts or (72 if options.data == "cub200" else 64)
    results: dict[str, Any] = {"command": sys.argv, "machine": platform.platform(), "processors": os.cpu_count()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.activations:
            file = given(options.activations, folder)
        elif options.data:
            file = of_data_set(options.data, options.rows)
        else:
            file = stand_in(folder / "stand-in.npy", max(options.rows, 300_000 if options.scaling else 0), 512)
        rows = min(options.rows, len(np.load(file, mmap_mode="r")))
        source = options.activations or options.data or "stand-in"
        print(f"{source}: {rows} rows, {v} concepts, {options.threads} threads on {os.cpu_count()} processors")
        if "nnls" not in options.skip:
            results["nnls"] = compare_nnls(file, min(rows, 10_000), v, folder, only=options.only)
            table(f"NNLS of {min(rows, 10_000)} rows to a KKT residual of {KKT:g}", results["nnls"], "residual")
        if "nmf" not in options.skip:
            results["nmf"] = compare_nmf(file, rows, v, options.iterations, only=options.only)
            goal = f"scikit-learn's objective after {options.iterations} iterations"
            table(f"NMF of {rows} rows to {goal}", results["nmf"], "objective")
        if options.scaling:
            results["scaling"] = scaling(file, v)
        if options.limits or options.busy:
            import concepts_limits  # not before the number of threads is set: it imports torch

            if options.limits:
                concepts_limits.CLOCK = time.process_time if options.processor else time.perf_counter
                some = np.array(np.load(file, mmap_mode="r")[:rows])
                results["limits"] = concepts_limits.limits(some, v) | concepts_limits.easy()
            if options.busy:
                concepts_limits.CLOCK = time.perf_counter
                results["busy"] = concepts_limits.beside_others()
    if options.out_of_core:
        results["out of core"] = larger_than_memory(options.out_of_core, v, options.dtype, iterations=10)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()

"""How near the solvers come to the bare matrix products that they need, on easy data, and beside other work.

`python benchmarks/concepts.py --limits --busy` runs these; every figure is a ratio of times of one run.
"""

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from concepts_peers import NMF, NNLS, Array, Factorise, objective
from masil.concepts import NMFConvergenceWarning, nmf, nnls
from masil.hardware import one_thread

ROWS, FEATURES, RANK = 4_000, 256, 64
SKLEARN_ITERATIONS = 50
CLOCK = time.perf_counter
SWEEPS = 3  # of coordinate descent over either factor in a pass, each with one Gram product's worth of work


def easy_rows() -> tuple[Array, Array]:
    """Give activations [n d] of rank 64 with hardly any noise, and the concepts they are made of."""
    draw = np.random.default_rng(0)
    P, Q = (np.maximum(draw.standard_normal(shape), 0) for shape in ((ROWS, RANK), (RANK, FEATURES)))
    return (P @ Q + 0.01 * np.abs(draw.standard_normal((ROWS, FEATURES)))).astype(np.float32), Q.astype(np.float32)


def bare_seconds(work: Callable[[], object]) -> float:
    """Give the time of bare products on one thread or on all, whichever is faster here."""
    with one_thread():
        single = seconds(work)
    return min(single, seconds(work))


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Give the best time of several, after one that warms up."""
    work()
    spent = []
    for _ in range(rounds):
        start = CLOCK()
        work()
        spent.append(CLOCK() - start)
    return min(spent)


@contextmanager
def busy_processes(count: int = 2) -> Iterator[None]:
    """Keep as many cores busy inside this block."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(1)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def easy() -> dict[str, float]:
    """Give how many times as fast as scikit-learn its objective after 50 iterations is reached on easy data."""
    A, _ = easy_rows()
    peer, own = NMF["scikit-learn, cd"](), NMF["masil"]()
    goal = objective(A, *peer(A, RANK, SKLEARN_ITERATIONS)) * (1 + 1e-6)
    iterations = next(k for k in range(1, 201) if objective(A, *own(A, RANK, k)) <= goal)

    def time_of(solve: Factorise, k: int) -> float:
        return seconds(lambda: solve(A, RANK, k), rounds=3)

    ratio = time_of(peer, SKLEARN_ITERATIONS) / time_of(own, iterations)
    print(f"NMF of {ROWS} × {FEATURES} rows of rank {RANK}: {iterations} iterations to the objective of scikit-learn's")
    print(f"{SKLEARN_ITERATIONS}, {ratio:.1f} × as fast")
    return {"easy, × scikit-learn": ratio}


def limits(A: Array, v: int) -> dict[str, float]:
    """Give the time of a pass of NMF, and of NNLS, as multiples of the bare products in them."""
    rows = torch.from_numpy(A)
    found = nmf(rows, v, max_iterations=10, tol=0)
    P, Q = found.coefficients, found.concepts
    assert P is not None
    X, G, PP = P.T.contiguous(), Q @ Q.T, (P.T @ P).double()

    def bare_pass() -> None:
        Q @ rows.T
        X @ rows
        X @ X.T
        for _ in range(SWEEPS):
            G @ X
            PP @ Q.double()

    # Two runs that differ in nothing but the number of passes: what is done once falls out of their difference.
    few, many = (seconds(lambda k=k: nmf(rows, v, init=Q, max_iterations=k, tol=0), rounds=3) for k in (5, 15))
    pass_ratio = (many - few) / 10 / bare_seconds(bare_pass)
    steps = int(nnls(rows, Q).iterations.double().mean())

    def bare_solve() -> None:
        cross = rows @ Q.T
        for _ in range(steps):
            cross @ G

    nnls_ratio = seconds(lambda: nnls(rows, Q)) / bare_seconds(bare_solve)
    print(f"{len(A)} × {A.shape[1]} rows, {v} concepts, in times of the bare products: a pass of NMF {pass_ratio:.2f},")
    print(f"NNLS ({steps} steps a row) {nnls_ratio:.2f}")
    return {"NMF, × bare products": pass_ratio, "NNLS, × bare products": nnls_ratio}


def beside_others() -> dict[str, float]:
    """Give how many times as long NNLS and NMF take beside two busy processes as alone, and their peers."""
    A, Q = easy_rows()
    work: dict[str, Callable[[], object]] = {
        "NNLS": lambda: nnls(torch.from_numpy(A), torch.from_numpy(Q)),
        "NMF": lambda: nmf(torch.from_numpy(A), RANK, max_iterations=8, tol=0),
        "scipy's NNLS of 400 rows": lambda: NNLS["scipy, row by row"]()(A[:400], Q, 0),
        "scikit-learn's NMF": lambda: NMF["scikit-learn, cd"]()(A, RANK, 8),
    }
    alone = {name: seconds(piece) for name, piece in work.items()}
    with busy_processes():
        beside = {name: seconds(piece) for name, piece in work.items()}
    ratios = {f"{name}, busy / quiet": beside[name] / alone[name] for name in work}
    print(f"{ROWS} × {FEATURES} rows beside two busy processes, in times of the time alone:")
    for name, ratio in ratios.items():
        print(f"{name.split(',')[0]:28}{ratio:8.1f} ×")
    return ratios


warnings.simplefilter("ignore", NMFConvergenceWarning)  # not to have converged is what is asked for here

"""How many threads work on what, all of them where steps are long and one where steps are short; how long work takes.

Threads that share a step wait for each other at its end. Where a step takes less than a few milliseconds, that costs
more than they save; beside other work, where one of them has just lost its core, it costs many times as much. So short
steps run on one thread, and work that falls into independent parts is shared out by the part: threads then wait once.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from masil.hardware.device import probe

if TYPE_CHECKING:
    import torch

Part = TypeVar("Part")
Done = TypeVar("Done")


def set_threads() -> None:
    """Let torch use as many threads as were found fastest, unless the user has set OMP_NUM_THREADS."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(probe().threads)


@contextmanager
def one_thread(short: bool = True) -> Iterator[None]:
    """Let torch work on one thread inside this block, if its steps are short."""
    import torch

    before = torch.get_num_threads()
    if before == 1 or not short:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def even_length(n: int, most: int, fewest: int) -> int:
    """Say how long equal parts of n rows are, at most `most`: two or four times as many as need be, or a multiple.

    Two or four threads then have as much to do, whoever takes which part. It is not done where a part would have less
    than `fewest` rows, and does not depend on the machine.
    """
    count = max(1, -(-n // most))
    for share in (4, 2):
        even = -(-count // share) * share
        if n >= even * fewest:
            count = even
            break
    return max(1, -(-n // count))


def share_out(work: Callable[[Part], Done], parts: Sequence[Part], threads: int) -> list[Done]:
    """Do independent parts of some work on so many threads, each part on one of them; no gradients are recorded."""
    import torch

    inference = torch.is_inference_mode_enabled()  # modes are a thread's own

    def run(part: Part) -> Done:
        with torch.inference_mode(inference), torch.no_grad():
            return work(part)

    with one_thread():
        if min(threads, len(parts)) < 2:
            return [run(part) for part in parts]
        with ThreadPoolExecutor(min(threads, len(parts)), initializer=partial(torch.set_num_threads, 1)) as pool:
            return list(pool.map(run, parts))


def best_seconds(work: Callable[[], object], device: "torch.device", budget: float = 0.15) -> float:
    """Time `work` again and again for `budget` seconds and give the best.

    The first run warms up and counts only if it alone uses up the budget: what is that slow need not be known exactly.
    """
    spent: list[float] = []
    while sum(spent) < budget:
        spent.append(_seconds(work, device, time.perf_counter))
    return min(spent[1:] or spent)


def time_in_turn(
    work: Mapping[str, Callable[[], object]], device: "torch.device", rounds: int = 3, *, processor_time: bool = False
) -> dict[str, float]:
    """Give the seconds that each piece of work takes: the best of `rounds`, after a first round that warms up.

    They take turns, so that what else the machine does meanwhile disturbs all of them. It hardly disturbs processor
    time, in which threads that wait for work count.
    """
    clock = time.process_time if processor_time else time.perf_counter
    spent = [{name: _seconds(piece, device, clock) for name, piece in work.items()} for _ in range(rounds + 1)]
    return {name: min(turn[name] for turn in spent[1:]) for name in work}


def _seconds(work: Callable[[], object], device: "torch.device", clock: Callable[[], float]) -> float:
    """Time one run, until the device has done what it was asked: without waiting, only the asking is timed."""
    import torch

    start = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return clock() - start

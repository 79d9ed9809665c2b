"""The child's side of a trial: `python -m masil.hardware.trial train|compile|engine …`, one JSON line per answer.

It may die of any stage. So it says which stage it begins before it begins it, and the deadly ones come last.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from masil.hardware.child import START

Stage = Callable[[], dict[str, Any]]


def main(arguments: list[str]) -> None:
    """Run the trial that `arguments` name and write its answers to standard output."""
    _leave_no_core_file()
    match arguments:
        case ["train", device]:
            _train(device)
        case ["compile", device, precision]:
            _compile(device, precision)
        case ["engine"]:
            _engine()
    _say(done=True)


def _train(device_name: str) -> None:
    """Choose the threads, train in float32, then train in bfloat16, where machines that lie are found out."""
    import torch

    from masil.hardware import workload

    device, physical = torch.device(device_name), torch.get_num_threads()
    _say(stage=START, torch=torch.__version__, devices=_accelerators())
    busy = _one_thread_if_busy()

    def stages(dtype: torch.dtype) -> None:
        def train() -> dict[str, Any]:
            step, n = workload.training_step(device, dtype)
            return {"images/s": n / workload.best_seconds(step, device)}

        precision = str(dtype).removeprefix("torch.")
        _try(f"{precision} matrix product", lambda: {"GFLOP/s": workload.matrix_product(device, dtype)})
        _try(f"{precision} convolution", lambda: {"GFLOP/s": workload.convolution(device, dtype)})
        _try(f"{precision} training", train)

    if device.type == "cpu":
        _try("threads", lambda: {"fastest": _threads(physical, busy)})
    stages(torch.float32)
    stages(torch.bfloat16)


def _threads(physical: int, busy: bool) -> int:
    """Compare one thread per usable logical core with one per physical core, and keep the faster."""
    import torch

    from masil.hardware import workload
    from masil.hardware.machine import usable_cores

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        return workload.best_seconds(step, cpu)

    few, many = min(usable_cores(), physical), usable_cores()
    if busy:
        return few
    cpu = torch.device("cpu")
    step, _ = workload.training_step(cpu, torch.float32)
    best = min(few, many, key=seconds) if few < many else few
    torch.set_num_threads(best)  # fewer than torch's own choice where a container has a quota
    return best


def _compile(device_name: str, precision: str) -> None:
    """Time one training step eager and compiled."""
    import torch

    from masil.hardware import workload

    device, dtype = torch.device(device_name), getattr(torch, precision)
    _say(stage=START, torch=torch.__version__)
    _one_thread_if_busy()

    def compiled() -> dict[str, Any]:
        start = time.perf_counter()
        step, _ = workload.training_step(device, dtype, compiled=True)
        step()
        spent = time.perf_counter() - start
        return {"ms": 1e3 * workload.best_seconds(step, device, budget=1.0), "s to compile": spent}

    def eager() -> dict[str, Any]:
        step, _ = workload.training_step(device, dtype)
        return {"ms": 1e3 * workload.best_seconds(step, device, budget=1.0)}

    _try("eager step", eager)
    _try("compiled step", compiled)


def _engine() -> None:
    """Time a frozen network on torch and on ONNX Runtime, and compare what they compute."""
    from masil.hardware import frozen

    _say(stage=START)
    _one_thread_if_busy()
    net = frozen.FrozenNet()
    _try("torch inference", lambda: {"images/s": net.torch_speed()})
    _try("onnxruntime inference", lambda: {"images/s": net.onnxruntime_speed()})


def _one_thread_if_busy() -> bool:
    """Measure on one thread while other work is going on: several wait for each other, which drowns the differences."""
    import torch

    from masil.hardware.machine import BUSY, load

    busy = load() > BUSY
    if busy:
        torch.set_num_threads(1)
    return busy


def _accelerators() -> list[str]:
    import torch

    found = ["cuda"] if torch.cuda.is_available() else []
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _try(stage: str, work: Stage) -> None:
    """Begin a stage and say what it found, or how it failed."""
    _say(begin=stage)
    try:
        _say(stage=stage, **work())
    except Exception as error:  # noqa: BLE001  whatever a stage raises is its answer
        _say(stage=stage, error=f"{type(error).__name__}: {error}".strip().splitlines()[0][:300])


def _say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _leave_no_core_file() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    main(sys.argv[1:])

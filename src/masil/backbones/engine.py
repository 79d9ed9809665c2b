"""What runs a frozen backbone: uint8 pixels in, activations out, no gradients.

On a processor there are two engines, PyTorch and ONNX Runtime. The first time a backbone is opened, both run it, and
the faster one is taken from then on.
"""

import copy
import hashlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.backbones.onnx import (
    TRACED,
    OnnxRefusedError,
    graph_file,
    keep_graph,
    onnx_version,
    open_onnx,
    run_onnx,
    trace_backbone,
)  # fmt: skip
from masil.data import on_this_thread
from masil.errors import DeviceError, InputError, StorageError, lookup
from masil.hardware import machine_key, resolve_device, time_in_turn, usable_cores
from masil.storage import cache_folder, from_json, read_json, to_json, write_json

ENGINES = ("auto", "onnxruntime", "torch")
TOLERANCE = 1e-3  # largest difference from PyTorch, as a share of the largest activation
PIXELS = 4 * 224 * 224  # of one run of ONNX Runtime: few enough for the processor's cache, many enough to hide the call
MARGIN = 1.1  # PyTorch is taken where it is faster by this factor: near a tie, the answer should not change
TIMED = (4, 32)  # fewest and most images that the engines are timed on; between them, one for each core
_LOG = logging.getLogger(__name__)

Load = Callable[[slice], Tensor]  # gives the pixels of some of the images, on whichever thread it is called


@final
@dataclass(frozen=True)
class PendingActivations:
    """Images that an engine has begun on, in parts."""

    parts: Sequence[Future[Tensor]]
    finish: Callable[[list[Tensor]], Tensor]

    def result(self) -> Tensor:
        """Wait for their activations [n d]; of what went wrong, the first is raised."""
        return self.finish([part.result() for part in self.parts])

    def cancel(self) -> None:
        """Give up what has not begun."""
        for part in self.parts:
            part.cancel()


class Engine(ABC):
    """Gives the activations of pixels, with the weights that the backbone had when the engine was opened."""

    name: str
    size: int | None  # the side of the squares it takes; None = any

    def run(self, pixels: Tensor) -> Tensor:
        """Map uint8 [n 3 h w] to float32 activations [n d] on the processor."""
        self._check(pixels)
        return self._activations(pixels)

    def begin(self, load: Load, n: int, loader: Executor) -> PendingActivations:
        """Start loading n images in the background, on `loader`; they are run when `result()` is called.

        Engines with workers of their own override this.
        """
        return PendingActivations([loader.submit(load, slice(0, n))], lambda loaded: self.run(loaded[0]))

    def _check(self, pixels: Tensor) -> None:
        right = pixels.dtype == torch.uint8 and pixels.ndim == 4 and pixels.shape[1] == 3
        if not right or (self.size is not None and pixels.shape[2:] != (self.size, self.size)):
            side = "h w" if self.size is None else f"{self.size} {self.size}"
            given = f"{pixels.dtype} of shape {list(pixels.shape)}"
            raise InputError(f"The engine takes uint8 pixels of shape [n 3 {side}], not {given}.")

    @abstractmethod
    def _activations(self, pixels: Tensor) -> Tensor:
        """Do what `run` promises; the pixels are right."""


@final
class TorchEngine(Engine):
    """A copy of the backbone in PyTorch: evaluation mode, float32, channels last."""

    name = "torch"
    size = None

    def __init__(self, backbone: Backbone, device: torch.device) -> None:
        self.backbone = frozen_copy(backbone).to(device)
        self.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in its stubs

    @torch.inference_mode()
    def _activations(self, pixels: Tensor) -> Tensor:
        activations: Tensor = self.backbone(self.backbone.preprocess(pixels))
        return activations.cpu()


@final
class OnnxEngine(Engine):
    """One ONNX graph on every core: the images are shared out to single-threaded runs, which never wait for each other.

    Splitting every operation over the cores instead loses wherever decoding takes its share of them: all threads of an
    operation wait for the one that was interrupted.
    """

    name = "onnxruntime"
    size: int

    def __init__(self, graph: bytes, size: int) -> None:
        self.size = size
        self._graph = graph
        self._cores = usable_cores()
        self._workers = ThreadPoolExecutor(self._cores, thread_name_prefix="engine")

    # Opening takes as long as some images do, so that each way of running is opened when it is first needed.
    @cached_property
    def _narrow(self) -> Any:
        return open_onnx(self._graph, threads=1)

    @cached_property
    def _wide(self) -> Any:
        return open_onnx(self._graph, threads=self._cores) if self._cores > 1 else self._narrow

    def begin(self, load: Load, n: int, loader: Executor) -> PendingActivations:
        """Begin on n images, each loaded by the thread that runs it: no core waits for another to load."""
        shared = n >= self._cores  # else there are too few to share out
        step = max(1, min(PIXELS // self.size**2, -(-n // self._cores))) if shared else max(1, n)
        session = self._narrow if shared else self._wide

        def load_and_run(part: slice) -> Tensor:
            with on_this_thread() if shared else nullcontext():
                pixels = load(part)
            self._check(pixels)
            return run_onnx(session, pixels)[0]

        parts = [slice(start, min(n, start + step)) for start in range(0, n, step)] or [slice(0, 0)]
        return PendingActivations([self._workers.submit(load_and_run, part) for part in parts], torch.cat)

    def _activations(self, pixels: Tensor) -> Tensor:
        return self.begin(pixels.__getitem__, len(pixels), self._workers).result()

    def check(self, backbone: Backbone) -> None:
        """Refuse the graph if it does not agree with PyTorch on noise, in both ways of running."""
        # Not as many images as the graph was traced with: some modules fix that number when they are traced.
        pixels = _noise(TRACED + 1, self.size)
        with torch.inference_mode():
            expected = backbone(backbone.preprocess(pixels))
        both = torch.cat([run_onnx(self._narrow, image[None])[0] for image in pixels]), run_onnx(self._wide, pixels)[0]
        if any(rows.shape != expected.shape for rows in both):
            raise OnnxRefusedError(f"it cannot compute the graph (for other than {TRACED} images).")
        difference = max(float((rows - expected).abs().max()) for rows in both)
        share = difference / max(float(expected.abs().max()), 1e-12)
        if not share < TOLERANCE:  # NaN, too, is wrong
            raise OnnxRefusedError(f"its activations differ from PyTorch's by {share:.2g} of the largest.")


@final
@dataclass(frozen=True)
class EngineTimes:
    """How long each engine took for one image of a backbone on a machine, kept beside its graph, by torch's threads."""

    backbone: str
    size: int
    seconds: Mapping[str, float]
    graph: str = ""  # the checksum of the graph, which had been checked
    threads: int = field(default_factory=torch.get_num_threads)
    machine: str = field(default_factory=machine_key)

    def __post_init__(self) -> None:
        if {*self.seconds} != {"onnxruntime", "torch"} or min(self.seconds.values()) <= 0:
            raise InputError(f"'seconds' cannot be {self.seconds}.")

    @property
    def fastest(self) -> str:
        """The engine to take."""
        clearly = self.seconds["torch"] * MARGIN < self.seconds["onnxruntime"]
        return "torch" if clearly else "onnxruntime"


def engine_times() -> list[EngineTimes]:
    """Give what was measured on this machine, for every backbone whose graph is in the cache."""
    files = sorted(cache_folder("onnx").glob("*.json"))
    return [times for times in map(_read_times, files) if times and times.machine == machine_key()]


def open_engine(backbone: Backbone, *, engine: str = "auto", device: str = "auto", size: int | None = None) -> Engine:
    """Open an engine for squares of `size` (by default the backbone's own) and see that it agrees with PyTorch.

    "auto" is what the variable MASIL_ENGINE names, and otherwise the engine that was faster with this backbone on this
    machine; PyTorch where ONNX Runtime is missing, cannot hold the backbone or computes something else, which is
    logged. Asked for by name, an engine is given or refused.
    """
    wanted = (os.environ.get("MASIL_ENGINE") or engine) if engine == "auto" else engine
    lookup("engine", wanted, dict.fromkeys(ENGINES))
    target = resolve_device(device)
    if engine == "onnxruntime" and target.type != "cpu":
        raise DeviceError(f"ONNX Runtime computes on the processor here, not on '{target}'; use engine='torch' there.")
    if wanted == "torch" or target.type != "cpu":
        return TorchEngine(backbone, target)
    side, threads = size or backbone.framing.crop, torch.get_num_threads()
    file = graph_file(backbone, side)
    kept = file.with_name(f"{file.stem}-{threads}-threads.json")
    times = _read_times(kept)
    if times and times.machine != machine_key():
        times = None  # measured elsewhere
    if wanted == "auto" and times and times.fastest == "torch":
        return TorchEngine(backbone, target)
    try:
        onnx_engine, checksum = _open_onnx_engine(backbone, side, file, times.graph if times else None)
    except OnnxRefusedError as refusal:
        if engine == "onnxruntime":
            raise DeviceError(f"'{backbone.name}' cannot run on ONNX Runtime: {refusal}") from refusal
        _LOG.warning("'%s' runs on PyTorch instead of ONNX Runtime: %s", backbone.name, refusal)
        return TorchEngine(backbone, target)
    if wanted == "onnxruntime" or times:
        return onnx_engine
    torch_engine = TorchEngine(backbone, target)
    pixels = _noise(min(max(usable_cores(), TIMED[0]), TIMED[1]), side)
    work = {"onnxruntime": partial(onnx_engine.run, pixels), "torch": partial(torch_engine.run, pixels)}
    seconds = {name: spent / len(pixels) for name, spent in time_in_turn(work, target).items()}
    times = EngineTimes(backbone.name, side, seconds, checksum, threads)
    with suppress(StorageError):
        write_json(kept, to_json(times))
    return torch_engine if times.fastest == "torch" else onnx_engine


def _read_times(file: Path) -> EngineTimes | None:
    with suppress(StorageError, InputError):
        return from_json(EngineTimes, read_json(file), "time of the engines")
    return None


def _open_onnx_engine(backbone: Backbone, size: int, file: Path, checked: str | None) -> tuple[OnnxEngine, str]:
    """Open the graph of a backbone, from the cache or traced now, and check it; give its checksum, too.

    The graph whose checksum is `checked` was checked on this machine before.
    """
    with suppress(OnnxRefusedError, OSError):  # nothing kept, or damaged: trace
        engine, checksum = _engine_of(file.read_bytes(), size)
        if checksum != checked:
            engine.check(frozen_copy(backbone))
        file.touch()
        return engine, checksum
    frozen = frozen_copy(backbone)
    graph = trace_backbone(frozen, size)
    engine, checksum = _engine_of(graph, size)
    engine.check(frozen)
    keep_graph(file, graph)
    return engine, checksum


def _engine_of(graph: bytes, size: int) -> tuple[OnnxEngine, str]:
    """Give an engine, and a checksum of its graph and of what runs it."""
    return OnnxEngine(graph, size), hashlib.sha256(graph + onnx_version().encode()).hexdigest()


def _noise(n: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


def frozen_copy(backbone: Backbone) -> Backbone:
    """Copy a backbone onto the processor in float32 and evaluation mode; the original may go on training."""
    return copy.deepcopy(backbone).eval().requires_grad_(False).to("cpu", torch.float32)

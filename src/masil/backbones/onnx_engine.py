"""ONNX Runtime as the engine: a graph kept under the backbone's fingerprint, compared with PyTorch when opened."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from masil.backbones.backbone import Backbone
from masil.backbones.engine import Engine, Load, Underway
from masil.backbones.onnx_export import TRACED, EngineRefusedError, export, first_line
from masil.data import on_this_thread
from masil.errors import StorageError
from masil.files import cache_folder, write_bytes
from masil.hardware import usable_cores

TOLERANCE = 1e-3  # largest difference from PyTorch, as a share of the largest activation
KEPT = 16  # graphs in the cache; the ones not used for longest go first
PIXELS = 4 * 224 * 224  # of one run: few enough for the processor's cache, many enough to hide the call
_VERSION = 1  # raised when the export changes


@final
class OnnxEngine(Engine):
    """One graph on every core: the images are shared out to single-threaded runs, which never wait for each other.

    Splitting every operation over the cores instead loses wherever decoding takes its share of them: all threads of an
    operation wait for the one that was interrupted.
    """

    name = "onnxruntime"
    size: int

    def __init__(self, graph: bytes, size: int) -> None:
        self.size = size
        self._cores = usable_cores()
        self._workers = ThreadPoolExecutor(self._cores, thread_name_prefix="engine")
        self._narrow = _open(graph, threads=1)
        self._wide = _open(graph, threads=self._cores) if self._cores > 1 else self._narrow

    def begin(self, load: Load, n: int, loader: Executor) -> Underway:
        """Begin on n images, each loaded by the thread that runs it: no core waits for another to load."""
        if n < self._cores:  # too few to share out
            return Underway([self._workers.submit(lambda: self.run(load(slice(0, n))))], torch.cat)

        def part(some: slice) -> Tensor:
            with on_this_thread():
                pixels = load(some)
            self._check(pixels)
            return _run(self._narrow, pixels)

        return Underway([self._workers.submit(part, some) for some in self._parts(n)], torch.cat)

    def _activations(self, pixels: Tensor) -> Tensor:
        if len(pixels) < self._cores:  # too few to share out
            return _run(self._wide, pixels)
        parts = self._workers.map(lambda some: _run(self._narrow, pixels[some]), self._parts(len(pixels)))
        return torch.cat(list(parts))

    def _parts(self, n: int) -> Iterator[slice]:
        step = max(1, min(PIXELS // self.size**2, -(-n // self._cores)))
        return (slice(start, min(n, start + step)) for start in range(0, n, step))

    def check(self, backbone: Backbone, size: int) -> None:
        """Refuse the graph if it does not agree with PyTorch on noise, in both ways of running."""
        generator = torch.Generator().manual_seed(0)
        # Not as many images as the graph was traced with: some modules fix that number when they are traced.
        pixels = torch.randint(0, 256, (TRACED + 1, 3, size, size), dtype=torch.uint8, generator=generator)
        with torch.inference_mode():
            expected = backbone(backbone.preprocess(pixels))
        try:
            found = (torch.cat([_run(self._narrow, one[None]) for one in pixels]), _run(self._wide, pixels))
            difference = max(float((rows - expected).abs().max()) for rows in found)
        except Exception as error:
            raise EngineRefusedError(f"it cannot compute the graph ({first_line(error)}).") from error
        share = difference / max(float(expected.abs().max()), 1e-12)
        if not share < TOLERANCE:  # NaN, too, is wrong
            raise EngineRefusedError(f"its activations differ from PyTorch's by {share:.2g} of the largest.")


def open_onnx_engine(backbone: Backbone, size: int) -> OnnxEngine:
    """Open the graph of a frozen backbone for squares of `size`, from the cache or exported now, and check it."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise EngineRefusedError("it is not installed (pip install onnxruntime).")
    path = cache_folder("onnx", f"{backbone.slug}-{size}-{backbone.fingerprint()[:24]}-v{_VERSION}.onnx")
    with suppress(EngineRefusedError, OSError):  # nothing kept, or damaged: export
        engine = OnnxEngine(path.read_bytes(), size)
        engine.check(backbone, size)
        path.touch()
        return engine
    graph = export(backbone, size)
    engine = OnnxEngine(graph, size)
    engine.check(backbone, size)
    with suppress(StorageError):  # a cache that cannot be written costs the next start some seconds, nothing else
        write_bytes(path, graph)
        _prune(path.parent)
    return engine


def _open(graph: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that wait in a loop would take the cores from those that decode.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineRefusedError(f"it does not accept the graph ({first_line(error)}).") from error


def _run(session: Any, pixels: Tensor) -> Tensor:
    return torch.from_numpy(session.run(None, {"pixels": pixels.contiguous().numpy()})[0])


def _prune(folder: Path) -> None:
    with suppress(OSError):  # another process may be pruning, too
        for path in sorted(folder.glob("*.onnx"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            path.unlink(missing_ok=True)

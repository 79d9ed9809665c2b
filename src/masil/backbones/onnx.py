"""A network as an ONNX graph: traced from PyTorch, opened by ONNX Runtime, kept in the cache."""

import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from masil.backbones.backbone import Backbone
from masil.errors import StorageError
from masil.storage import cache_folder, write_bytes

TRACED = 2  # images; the graph takes any number
KEPT = 16  # graphs in the cache; the ones not used for longest go first
_VERSION = 1  # raised when the export changes


class OnnxRefusedError(Exception):
    """Why a network cannot run on ONNX Runtime, as the end of a sentence."""


def trace_onnx(network: nn.Module, pixels: Tensor, outputs: Sequence[str]) -> bytes:
    """Trace pixels uint8 [n 3 h w] → `outputs`, n free, into an ONNX graph whose input is called "pixels".

    The network must be in evaluation mode; its batch norms are folded into the convolutions.
    """
    try:
        # The tracing exporter is the one that needs no further package. It warns of its age and of every size it
        # fixes, and prints the whole graph where it fails.
        with warnings.catch_warnings(), _silence(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            target = Path(folder, "graph.onnx")
            torch.onnx.export(
                network, (pixels,), target, dynamo=False, input_names=["pixels"], output_names=[*outputs],
                dynamic_axes={name: {0: "n"} for name in ("pixels", *outputs)},
            )  # fmt: skip
            return target.read_bytes()
    except Exception as error:
        raise OnnxRefusedError(f"its export to ONNX failed ({_first_line(error)}).") from error


def open_onnx(graph: bytes, threads: int | None = None) -> Any:
    """Open a graph in ONNX Runtime on the processor, with as many threads as it likes or as are given."""
    _refuse_missing()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    # Threads that wait in a loop would take the cores from those that decode.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise OnnxRefusedError(f"it does not accept the graph ({_first_line(error)}).") from error


def run_onnx(session: Any, pixels: Tensor) -> list[Tensor]:
    """Give the outputs of an open graph for uint8 [n 3 h w]."""
    try:
        return [torch.from_numpy(values) for values in session.run(None, {"pixels": pixels.contiguous().numpy()})]
    except Exception as error:
        raise OnnxRefusedError(f"it cannot compute the graph ({_first_line(error)}).") from error


def graph_file(backbone: Backbone, size: int) -> Path:
    """Say where the graph of a backbone for squares of `size` is kept."""
    return cache_folder("onnx", f"{backbone.slug}-{size}-{backbone.fingerprint()[:24]}-v{_VERSION}.onnx")


def trace_backbone(backbone: Backbone, size: int) -> bytes:
    """Trace uint8 [n 3 size size] → activations [n d]; the graph begins by normalising."""
    _refuse_missing()  # before the seconds that tracing takes
    pixels = torch.zeros(TRACED, 3, size, size, dtype=torch.uint8)
    return trace_onnx(_FromPixels(backbone).eval(), pixels, ["activations"])


def keep_graph(file: Path, graph: bytes) -> None:
    """Keep a graph for the next time, beside the latest others; a cache that cannot be written costs only time."""
    with suppress(StorageError, OSError):  # another process may be pruning, too
        write_bytes(file, graph)
        for old in sorted(file.parent.glob("*.onnx"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            for gone in (old, old.with_suffix(".json"), *file.parent.glob(f"{old.stem}-*-threads.json")):
                gone.unlink(missing_ok=True)


def onnx_version() -> str:
    """Give the version of ONNX Runtime without importing it."""
    with suppress(PackageNotFoundError):
        return version("onnxruntime")
    return "unknown"  # another distribution's, such as onnxruntime-gpu


def _refuse_missing() -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        raise OnnxRefusedError("it is not installed (pip install onnxruntime).")


def _first_line(error: Exception) -> str:
    """Give the beginning of an error that may go on for pages."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:200]


@contextmanager
def _silence() -> Iterator[None]:
    """Send standard output nowhere, including what C++ writes, which `redirect_stdout` does not reach."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


class _FromPixels(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels: Tensor) -> Tensor:
        activations: Tensor = self.backbone(self.backbone.preprocess(pixels))
        return activations

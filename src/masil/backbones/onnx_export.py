"""A backbone as an ONNX graph."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from masil.backbones.backbone import Backbone

TRACED = 2  # images; the graph takes any number


class EngineRefusedError(Exception):
    """Why a backbone cannot run on ONNX Runtime, as the end of a sentence."""


def export(backbone: Backbone, size: int) -> bytes:
    """Trace uint8 [n 3 size size] → activations [n d], n free, into an ONNX graph that begins by normalising.

    The backbone must be in evaluation mode; its batch norms are folded into the convolutions.
    """
    pixels = torch.zeros(TRACED, 3, size, size, dtype=torch.uint8)
    try:
        # The tracing exporter is the one that needs no further package. It warns of its age and of every size it
        # fixes, and prints the whole graph where it fails.
        with warnings.catch_warnings(), _silence(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            target = Path(folder, "graph.onnx")
            torch.onnx.export(
                _FromPixels(backbone).eval(), (pixels,), target, dynamo=False,
                input_names=["pixels"], output_names=["activations"],
                dynamic_axes={"pixels": {0: "n"}, "activations": {0: "n"}},
            )  # fmt: skip
            return target.read_bytes()
    except Exception as error:
        raise EngineRefusedError(f"its export to ONNX failed ({first_line(error)}).") from error


def first_line(error: Exception) -> str:
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

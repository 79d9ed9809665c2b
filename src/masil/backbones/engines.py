"""The fastest engine that computes the same: ONNX Runtime on processors, PyTorch elsewhere and where that fails."""

from __future__ import annotations

import logging

from masil.backbones.backbone import Backbone
from masil.backbones.engine import Engine, TorchEngine, frozen_copy
from masil.backbones.onnx_engine import open_onnx_engine
from masil.backbones.onnx_export import EngineRefusedError
from masil.errors import DeviceError, lookup
from masil.hardware import probe, resolve_device

ENGINES = ("auto", "onnxruntime", "torch")
_LOG = logging.getLogger(__name__)


def open_engine(backbone: Backbone, *, engine: str = "auto", device: str = "auto", size: int | None = None) -> Engine:
    """Open an engine for squares of `size` (by default the backbone's own) and see that it agrees with PyTorch.

    "auto" takes what the hardware probe found faster, and PyTorch where ONNX Runtime is missing, cannot hold the
    backbone or computes something else; that is logged. Asked for by name, an engine is given or refused.
    """
    lookup("engine", engine, dict.fromkeys(ENGINES))
    place = resolve_device(device)
    if engine == "onnxruntime" and place.type != "cpu":
        raise DeviceError(f"ONNX Runtime computes on the processor here, not on '{place}'; use engine='torch' there.")
    if engine == "torch" or place.type != "cpu" or (engine == "auto" and probe().engine == "torch"):
        return TorchEngine(backbone, place)
    try:
        return open_onnx_engine(frozen_copy(backbone), size or backbone.framing.crop)
    except EngineRefusedError as refusal:
        if engine == "onnxruntime":
            raise DeviceError(f"'{backbone.name}' cannot run on ONNX Runtime: {refusal}") from refusal
        _LOG.warning("'%s' runs on PyTorch instead of ONNX Runtime: %s", backbone.name, refusal)
        return TorchEngine(backbone, place)

"""A model as one ONNX graph, to run where there is neither masil nor PyTorch: pixels in, probabilities out.

    pixels uint8 [n 3 h w] → a = f(pixels) → z = g(a^p)/‖g(a^p)‖ → softmax(s · (z Wᵀ − offsets)), and P(known)

Class names, how a photo becomes `pixels`, and below which P(known) a photo is called unknown are in its metadata. The
graph is given out only after ONNX Runtime has computed the same as PyTorch with it.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from masil.errors import DeviceError, InputError
from masil.learner.unknown import evidence, tightness

if TYPE_CHECKING:
    from masil.learner.masil import Masil

TOLERANCE = 1e-3  # largest difference of a probability from PyTorch's
CHECKED = 16  # images in one go
TRACED = 2  # images; the graph takes any number


def export_onnx(model: Masil, pixels: Tensor | None = None) -> bytes:
    """Give the graph with its metadata, checked on `pixels` uint8 [n 3 h w], framed photos, and on noise."""
    import onnx

    backbone = model.encoder_.backbone
    if backbone is None:
        raise InputError(
            "This model takes activations and has no backbone, so there is no graph from pixels to classes."
        )
    whole = _Whole(model).eval()
    crop = backbone.framing.crop
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (TRACED + 1, 3, crop, crop), dtype=torch.uint8, generator=generator)
    graph = onnx.load_from_string(_trace(whole, noise[:TRACED]))
    onnx.helper.set_model_props(graph, metadata(model))
    content: bytes = graph.SerializeToString()
    _check(content, whole, noise if pixels is None else torch.cat([pixels, noise]))
    return content


def metadata(model: Masil) -> dict[str, str]:
    """Say what whoever runs the graph must know, each entry JSON or a sentence."""
    backbone, rejector = model.encoder_.backbone, model.base_.rejector
    assert backbone is not None
    preprocessing = {
        "colour": "RGB, upright (EXIF orientation applied), transparency on white",
        "resize_shorter_side": backbone.framing.resize,
        "interpolation": "bilinear, antialiased",
        "centre_crop": backbone.framing.crop,
        "input": "pixels, uint8 from 0 to 255, [n 3 h w]; they are normalised inside the graph",
    }
    found = {
        "producer": "masil",
        "labels": json.dumps(model.memory_.labels, ensure_ascii=False),
        "preprocessing": json.dumps(preprocessing),
        "backbone": json.dumps(backbone.config() | {"fingerprint": backbone.fingerprint()}),
        "temperature": json.dumps(model.base_.temperature),
    }
    if rejector is not None:
        found["unknown_below"] = json.dumps(rejector.threshold)
    return found


class _Whole(nn.Module):
    """Backbone, power, g, class vectors and both kinds of confidence in one."""

    vectors: Tensor
    offsets: Tensor
    tightness: Tensor
    weights: Tensor

    def __init__(self, model: Masil) -> None:
        super().__init__()
        memory, rejector = model.memory_, model.base_.rejector
        assert model.encoder_.backbone is not None
        self.backbone = model.encoder_.backbone
        self.embedding = model.base_.embedding
        self.power, self.temperature = model.base_.power, model.base_.temperature
        self.register_buffer("vectors", memory.vectors)
        self.register_buffer("offsets", model.offsets_)
        self.register_buffer("tightness", tightness(memory.means, memory.counts))
        self.register_buffer("weights", torch.tensor(() if rejector is None else rejector.weights))
        self.intercept = None if rejector is None else rejector.intercept

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        x = self.backbone(self.backbone.preprocess(pixels)).pow(self.power)
        g = self.embedding.transform(x)
        lengths = g.norm(dim=1)
        cosines = (g / lengths.clamp_min(1e-12)[:, None]) @ self.vectors.T
        probabilities = torch.softmax(self.temperature * (cosines - self.offsets), 1)
        if self.intercept is None:
            return (probabilities,)
        return probabilities, torch.sigmoid(evidence(cosines, lengths, self.tightness) @ self.weights + self.intercept)


def _trace(whole: _Whole, pixels: Tensor) -> bytes:
    names = ["probabilities", *(["known"] if whole.intercept is not None else [])]
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")  # the tracing exporter, which needs no further package, warns of its age
            target = Path(folder, "graph.onnx")
            torch.onnx.export(
                whole, (pixels,), target, dynamo=False, input_names=["pixels"], output_names=names,
                dynamic_axes={name: {0: "n"} for name in ("pixels", *names)},
            )  # fmt: skip
            return target.read_bytes()
    except Exception as error:
        raise DeviceError(
            f"'{whole.backbone.name}' cannot be exported to ONNX ({str(error).strip().splitlines()[0][:200]})."
        ) from error


def _check(content: bytes, whole: _Whole, pixels: Tensor) -> None:
    """Compute the pixels with ONNX Runtime and with PyTorch, and refuse a graph that differs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for part in torch.split(pixels, CHECKED):
        with torch.inference_mode():
            expected = whole(part)
        for found, right in zip(session.run(None, {"pixels": part.numpy()}), expected, strict=True):
            difference = float(np.abs(found - right.numpy()).max())
            if not difference < TOLERANCE:  # NaN, too, is wrong
                raise DeviceError(
                    f"ONNX Runtime computes something else with the graph than PyTorch: a probability differs by "
                    f"{difference:.2g}. It was not written."
                )

"""A model as one ONNX graph, to run where there is neither masil nor PyTorch: pixels in, probabilities out.

    pixels uint8 [n 3 h w] → a = f(pixels) → z = g(a^p)/‖g(a^p)‖ → softmax(s · (z Wᵀ − offsets)), and P(known)

Class names, how a photo becomes `pixels`, and below which P(known) a photo is called unknown are in its metadata. The
graph is given out only after ONNX Runtime has computed the same as PyTorch with it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from masil.backbones import Backbone, OnnxRefusedError, open_onnx, run_onnx, trace_onnx
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
    network = _WholeModel(model, backbone).eval()
    crop = backbone.framing.crop
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (TRACED + 1, 3, crop, crop), dtype=torch.uint8, generator=generator)
    outputs = ["probabilities", *(["known"] if network.intercept is not None else [])]
    try:
        graph = onnx.load_from_string(trace_onnx(network, noise[:TRACED], outputs))
        onnx.helper.set_model_props(graph, _metadata(model, backbone))
        content: bytes = graph.SerializeToString()
        _check(content, network, noise if pixels is None else torch.cat([pixels, noise]))
    except OnnxRefusedError as refusal:
        raise DeviceError(f"'{backbone.name}' cannot be exported to ONNX: {refusal}") from refusal
    return content


def _metadata(model: Masil, backbone: Backbone) -> dict[str, str]:
    """Say what whoever runs the graph must know, each entry JSON or a sentence."""
    preprocessing = {
        "colour": "RGB, upright (EXIF orientation applied), transparency on white",
        "resize_shorter_side": backbone.framing.resize,
        "interpolation": "bilinear, antialiased",
        "centre_crop": backbone.framing.crop,
        "input": "pixels, uint8 from 0 to 255, [n 3 h w]; they are normalised inside the graph",
    }
    metadata = {
        "producer": "masil",
        "labels": json.dumps(model.memory_.labels, ensure_ascii=False),
        "preprocessing": json.dumps(preprocessing),
        "backbone": json.dumps(backbone.config() | {"fingerprint": backbone.fingerprint()}),
        "temperature": json.dumps(model.base_.temperature),
    }
    if model.base_.unknown_detector is not None:
        metadata["unknown_below"] = json.dumps(model.base_.unknown_detector.threshold)
    return metadata


class _WholeModel(nn.Module):
    """Backbone, power, g, class vectors and both kinds of confidence in one."""

    vectors: Tensor
    offsets: Tensor
    tightness: Tensor
    weights: Tensor

    def __init__(self, model: Masil, backbone: Backbone) -> None:
        super().__init__()
        memory, base, detector = model.memory_, model.base_, model.base_.unknown_detector
        self.backbone, self.embedding = backbone, base.embedding
        self.power, self.temperature = base.power, base.temperature
        self.register_buffer("vectors", memory.vectors)
        self.register_buffer("offsets", model.offsets_)
        self.register_buffer("tightness", tightness(memory.means, memory.counts))
        self.register_buffer("weights", torch.tensor(() if detector is None else detector.weights))
        self.intercept = None if detector is None else detector.intercept

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        x = self.backbone(self.backbone.preprocess(pixels)).pow(self.power)
        g = self.embedding.transform(x)
        lengths = g.norm(dim=1)
        cosines = (g / lengths.clamp_min(1e-12)[:, None]) @ self.vectors.T
        probabilities = torch.softmax(self.temperature * (cosines - self.offsets), 1)
        if self.intercept is None:
            return (probabilities,)
        return probabilities, torch.sigmoid(evidence(cosines, lengths, self.tightness) @ self.weights + self.intercept)


def _check(content: bytes, network: _WholeModel, pixels: Tensor) -> None:
    """Compute the pixels with ONNX Runtime and with PyTorch, and refuse a graph that differs."""
    session = open_onnx(content)
    for part in torch.split(pixels, CHECKED):
        with torch.inference_mode():
            expected = network(part)
        for computed, right in zip(run_onnx(session, part), expected, strict=True):
            difference = float((computed - right).abs().max())
            if not difference < TOLERANCE:  # NaN, too, is wrong
                raise DeviceError(
                    f"ONNX Runtime computes something else with the graph than PyTorch: a probability differs by "
                    f"{difference:.2g}. It was not written."
                )

"""A frozen network of inverted residual blocks, on torch and on ONNX Runtime, with the same weights."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from masil.hardware.workload import SEED, WrongNumbersError, best_seconds

IMAGES, CHANNELS, WIDE, SIDE, BLOCKS = 8, 24, 144, 28, 3
CPU = torch.device("cpu")


class FrozenNet:
    """Three blocks of expand 1 × 1, depthwise 3 × 3, project 1 × 1: the shape of the backbones masil uses frozen."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(SEED)
        shapes = [(WIDE, CHANNELS, 1, 1), (WIDE, 1, 3, 3), (CHANNELS, WIDE, 1, 1)] * BLOCKS
        self.weights = [
            torch.randn(*shape, generator=generator) * (2 / (shape[1] * shape[2] ** 2)) ** 0.5 for shape in shapes
        ]
        self.x = torch.rand(IMAGES, CHANNELS, SIDE, SIDE, generator=generator)

    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        """Compute the network with torch."""
        for weight in self.weights:
            depthwise = weight.shape[1] == 1
            groups, padding = (WIDE, 1) if depthwise else (1, 0)
            x = functional.conv2d(x, weight, groups=groups, padding=padding).relu_()
        return x

    def torch_speed(self) -> float:
        """Give images per second on torch, in the layout that is faster for torch."""
        x = self.x.contiguous(memory_format=torch.channels_last)
        return IMAGES / best_seconds(lambda: self.forward(x), CPU)

    def onnxruntime_speed(self) -> float:
        """Give images per second on ONNX Runtime, if it computes the same as torch."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(self.graph(), options, providers=["CPUExecutionProvider"])
        inputs = {"x": self.x.numpy()}
        expected, got = self.forward(self.x), torch.from_numpy(session.run(None, inputs)[0])
        error = float((got - expected).abs().max() / expected.abs().max())
        if not error <= 1e-3:
            raise WrongNumbersError(f"wrong numbers: off by {error:.2g} of the largest entry")
        return IMAGES / best_seconds(lambda: session.run(None, inputs), CPU)

    def graph(self) -> bytes:
        """Give the network as an ONNX model."""
        from onnx import TensorProto, helper, numpy_helper

        nodes: list[Any] = []
        for index, weight in enumerate(self.weights):
            attributes: dict[str, Any] = {"group": WIDE, "pads": [1, 1, 1, 1]} if weight.shape[1] == 1 else {}
            source = f"h{index}" if index else "x"
            nodes.append(helper.make_node("Conv", [source, f"w{index}"], [f"c{index}"], **attributes))
            nodes.append(helper.make_node("Relu", [f"c{index}"], [f"h{index + 1}"]))
        shape = list(self.x.shape)
        graph = helper.make_graph(
            nodes, "frozen",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(f"h{len(self.weights)}", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(weight.numpy(), f"w{index}") for index, weight in enumerate(self.weights)],
        )  # fmt: skip
        # Old versions on purpose: every ONNX Runtime that masil allows reads them.
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
        return bytes(model.SerializeToString())

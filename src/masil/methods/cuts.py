"""Networks that are cut or turned: what of a backbone is frozen, and where a session may begin to train."""

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from masil.backbones import Backbone, ConvNet
from masil.errors import InputError


class Cut(Backbone):
    """A frozen network that is stopped early: pixels to maps of one `shape` [c h w] >= 0, flattened."""

    shape: tuple[int, ...]

    def __init__(self, backbone: Backbone, where: str) -> None:
        super().__init__(f"{backbone.name} {where}", 1, backbone.framing, mean=backbone.mean, std=backbone.std)
        self.whole = backbone
        self.where = where
        side = backbone.framing.crop
        with torch.no_grad():
            self.shape = tuple(self.maps(backbone.preprocess(torch.zeros(1, 3, side, side))).shape[1:])
        self.features = math.prod(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        """Give the maps in rows [n c·h·w]."""
        return self.maps(x).flatten(1)

    def config(self) -> dict[str, Any]:
        """Say where the network was cut."""
        return {**self.whole.config(), "cut": self.where}


@final
class UpToLastBlock(Cut):
    """A network of blocks without its last block, or without its last stage: what sessions leave as it is."""

    def __init__(self, backbone: Backbone, *, stage: bool = False) -> None:
        self.opened = len(last_blocks(backbone, stage=stage))
        super().__init__(backbone, "before the last stage" if stage else "before the last block")

    def maps(self, x: Tensor) -> Tensor:
        """Run all that is frozen."""
        network = network_of_blocks(self.whole)
        x = network.stem(x)
        for block in [block for section in network.sections() for block in section][: -self.opened]:
            x = block(x)
        return x


@final
class LastMaps(Cut):
    """Any backbone before its pooling: the last feature map, averaged down to at most `side` × `side` places."""

    def __init__(self, backbone: Backbone, side: int) -> None:
        self.side = side
        super().__init__(backbone, f"maps of {side} x {side}")

    def maps(self, x: Tensor) -> Tensor:
        """Run all but the pooling over all places."""
        maps = self.whole.maps(x)
        h, w = (averages(int(places), self.side).to(maps) for places in maps.shape[2:])
        return h @ maps @ w.T


@final
class Turned(Backbone):
    """A backbone that sees every image turned by so many quarters of a circle."""

    def __init__(self, backbone: Backbone, quarters: int) -> None:
        name = f"{backbone.name} turned by {90 * quarters}"
        super().__init__(name, backbone.features, backbone.framing, mean=backbone.mean, std=backbone.std)
        self.whole = backbone
        self.quarters = quarters

    def maps(self, x: Tensor) -> Tensor:
        """Run the backbone on turned pixels."""
        return self.whole.maps(self._turned(x))

    def forward(self, x: Tensor) -> Tensor:
        """Give the activations of turned pixels."""
        activations: Tensor = self.whole(self._turned(x))
        return activations

    def config(self) -> dict[str, Any]:
        """Say by how much images are turned."""
        return {**self.whole.config(), "quarters": self.quarters}

    def _turned(self, x: Tensor) -> Tensor:
        for _ in range(self.quarters):
            x = x.transpose(2, 3).flip(2)  # a quarter, in operations that can be exported to ONNX
        return x


def averages(places: int, most: int) -> Tensor:
    """Give the matrix [m places] that averages a line of places down to m <= `most`, as adaptive pooling does.

    A product, unlike adaptive pooling, can be exported to ONNX whatever the sizes.
    """
    m = min(places, most)
    rows = torch.zeros(m, places)
    for row in range(m):
        first, last = row * places // m, -(-(row + 1) * places // m)
        rows[row, first:last] = 1 / (last - first)
    return rows


def network_of_blocks(backbone: Backbone) -> ConvNet:
    """Give a network that says what its blocks are, or refuse another backbone."""
    if not isinstance(backbone, ConvNet):
        raise InputError(
            f"'{backbone.name}' has no residual blocks of which a session could train the last; use one ResNet or one "
            "EfficientNet-Lite."
        )
    return backbone


def last_blocks(backbone: Backbone, *, stage: bool = False) -> list[nn.Module]:
    """Give a network's last block, or all blocks of its last stage."""
    section = network_of_blocks(backbone).sections()[-1]
    return section if stage else section[-1:]

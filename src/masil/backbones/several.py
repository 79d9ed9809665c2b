"""Several backbones as one: each sees the same picture, and their activations stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.backbones.backbone import Backbone
from masil.data import Framing
from masil.errors import InputError

JOINT = "+"  # between the names


@final
class SeveralBackbones(Backbone):
    """The activations of two or more backbones side by side; "a+b" names one made of the backbones a and b.

    A picture is decoded and framed once, as the part with the largest square expects it, and every part sees that
    square. So it costs what its parts cost together, and a part made for smaller squares costs more than alone:
    EfficientNet-Lite0 on the 260 px of Lite2 takes (260 / 224)², 1.35 times as long as on its own 224 px. Everything
    that grows with the number of features grows, too: "efficientnet_lite0+efficientnet_lite2" has 2,560 of them, so
    that class vectors take twice, and a d × d map four times the memory.
    """

    def __init__(self, parts: Sequence[Backbone], *, framing: Framing | None = None) -> None:
        if len(parts) < 2:
            raise InputError(f"Several backbones are at least two, but there are {len(parts)}.")
        largest = max((part.framing for part in parts), key=lambda framing: framing.crop)
        # Each part normalises the pixels itself; here they are only scaled to [0, 1].
        name = JOINT.join(part.name for part in parts)
        features = sum(part.features for part in parts)
        super().__init__(name, features, framing or largest, mean=(0, 0, 0), std=(1, 1, 1))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Give the activations of every part, [n d₁ + d₂ + …]."""
        return torch.cat([part(part.preprocess(x)) for part in self.members()], 1)

    def maps(self, x: Tensor) -> Tensor:
        """Give the last feature map of every part, brought to the size of the largest."""
        maps = [part.maps(part.preprocess(x)) for part in self.members()]
        size = max(m.shape[2] for m in maps), max(m.shape[3] for m in maps)
        return torch.cat([m if m.shape[2:] == size else functional.interpolate(m, size) for m in maps], 1)

    def config(self) -> dict[str, Any]:
        """Give the name, the framing, and the configuration of every part."""
        framing = [self.framing.resize, self.framing.crop]
        return {"name": self.name, "framing": framing, "parts": [part.config() for part in self.members()]}

    def members(self) -> list[Backbone]:
        """Give the backbones that it is made of."""
        return [part for part in self.parts if isinstance(part, Backbone)]

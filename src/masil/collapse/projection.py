"""g learnt: a small network that the base session trains onto the frame."""

from collections.abc import Sequence
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from masil.collapse.embedding import Embedding
from masil.errors import InputError

SLOPE = 0.1  # of the leaky rectifiers


@final
class Projection(Embedding):
    """NC-FSCIL's neck: g(a) = C(φ(B(φ(A a)))) + S a, φ a layer norm and a leaky rectifier, S a linear skip.

    `hidden` are the widths between, by default twice the features in, twice over; () leaves a linear map. Weights are
    drawn from `generator`, without one from seed 0.
    """

    form: ClassVar[str] = "projection"

    def __init__(
        self,
        features_in: int,
        features_out: int = 512,
        hidden: Sequence[int] | None = None,
        skip: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(features_in, features_out)
        self.hidden = (2 * features_in, 2 * features_in) if hidden is None else tuple(hidden)
        if any(width < 1 for width in self.hidden):
            raise InputError(f"The hidden widths of a projection are {list(self.hidden)}, but must be at least 1.")
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        layers: list[nn.Module] = []
        width = features_in
        for wider in self.hidden:
            layers += [drawn_linear(width, wider, True, generator), nn.LayerNorm(wider), nn.LeakyReLU(SLOPE)]
            width = wider
        self.layers = nn.Sequential(*layers, drawn_linear(width, features_out, False, generator))
        self.skip = drawn_linear(features_in, features_out, False, generator) if skip else None

    def transform(self, activations: Tensor) -> Tensor:
        """Run the layers and add the skip."""
        result: Tensor = self.layers(activations)
        return result if self.skip is None else result + self.skip(activations)

    def config(self) -> dict[str, Any]:
        """Give the widths."""
        return {
            "features_in": self.features_in,
            "features_out": self.features_out,
            "hidden": list(self.hidden),
            "skip": self.skip is not None,
        }


def drawn_linear(features_in: int, features_out: int, bias: bool, generator: torch.Generator) -> nn.Linear:
    """Make a layer with weights and bias uniform in ±1/√in, as torch draws them, but from `generator`."""
    layer = nn.Linear(features_in, features_out, bias=bias, device="meta").to_empty(device="cpu")
    bound = features_in**-0.5
    with torch.no_grad():
        for parameter in layer.parameters():
            drawn = torch.rand(parameter.shape, generator=generator, device=generator.device)
            parameter.copy_((2 * drawn - 1) * bound)
    return layer

"""g, the map from activations to embeddings, whatever its form: learnt, linear or closed-form whitening."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import Tensor, nn
from torch.nn import functional

from masil.errors import InputError, StorageError, lookup

EMBEDDINGS: dict[str, type[Embedding]] = {}  # the forms of g by name: a model file says which one it holds


class Embedding(nn.Module, ABC):
    """The map a [n d] → z [n d'] = g(a)/‖g(a)‖. Sessions see only this; an `a` that g sends to 0 stays 0.

    `config` holds plain values and `state` tensors; `from_state` makes the same map of them again.
    """

    form: ClassVar[str]  # its name in a model file
    features_in: int
    features_out: int

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        if features_in < 1 or features_out < 1:
            raise InputError(f"A map from {features_in} to {features_out} features is not possible; both must be >= 1.")
        self.features_in = features_in
        self.features_out = features_out

    def __init_subclass__(cls) -> None:
        """Make this form known by its name."""
        EMBEDDINGS[cls.form] = cls

    if TYPE_CHECKING:

        def __call__(self, activations: Tensor) -> Tensor:
            """Run `forward`; torch leaves its type open."""

    def forward(self, activations: Tensor) -> Tensor:
        """Give embeddings of unit length."""
        if activations.ndim != 2 or activations.shape[1] != self.features_in:
            raise InputError(
                f"The activations have the shape {list(activations.shape)} but this {self.form} takes "
                f"[n {self.features_in}]; were they computed with the same backbone?"
            )
        return functional.normalize(self.transform(activations))

    @abstractmethod
    def transform(self, activations: Tensor) -> Tensor:
        """Give g(a), before its length is taken away."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Give the plain values with which the class is called to make a map of this shape."""

    def state(self) -> dict[str, Tensor]:
        """Give copies of the tensors that the map has learnt, on the CPU."""
        return {name: value.detach().cpu().clone().contiguous() for name, value in self.state_dict().items()}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Self:
        """Make the map that gave this `config` and `state`."""
        try:
            embedding = cls(**config)
            embedding.load_state_dict(dict(state))
        except (TypeError, RuntimeError) as error:
            # torch puts a heading on the first line and the first fact on the second.
            fact = str(error).strip().splitlines()[:2][-1].strip(" .")
            raise StorageError(f"The saved {cls.form} does not fit its description ({fact}).") from error
        return embedding


def embedding_from_state(form: str, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Embedding:
    """Make the map of that form which gave this `config` and `state`."""
    return lookup("form of embedding", form, EMBEDDINGS).from_state(config, state)

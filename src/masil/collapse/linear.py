"""g linear: the paper to the letter, where the classifier is a product of matrices."""

from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, nn

from masil.collapse.embedding import Embedding
from masil.errors import InputError


@final
class LinearMap(Embedding):
    """g(a) = V a. Without `features_out` it is the identity and has no weight; with it, V starts as its first rows."""

    form: ClassVar[str] = "linear map"

    def __init__(self, features_in: int, features_out: int | None = None) -> None:
        super().__init__(features_in, features_in if features_out is None else features_out)
        self.weight = None if features_out is None else nn.Parameter(torch.eye(features_out, features_in))

    @classmethod
    def from_weight(cls, weight: Tensor) -> Self:
        """Make the map a → weight a of a matrix [features_out features_in]."""
        if weight.ndim != 2:
            raise InputError(f"A linear map needs a matrix, but was given the shape {list(weight.shape)}.")
        return cls.from_state(
            {"features_in": weight.shape[1], "features_out": weight.shape[0]}, {"weight": weight.detach()}
        )

    def transform(self, activations: Tensor) -> Tensor:
        """Multiply by the weight."""
        return activations if self.weight is None else activations @ self.weight.T

    def config(self) -> dict[str, Any]:
        """Give the shape of the weight."""
        return {
            "features_in": self.features_in,
            "features_out": None if self.weight is None else self.features_out,
        }


def balanced_factors(W: Tensor) -> tuple[Tensor, Tensor]:
    """Split W = U S Vᵀ [k d] into U S^½ [k r] and S^½ Vᵀ [r d], r = min(k, d).

    This is how we read ŵ^{1/L} for L = 2 layers: of all products that give W, the one with equal Gram matrices on the
    inside, to which gradient descent on deep linear networks converges.
    """
    if W.ndim != 2 or not bool(W.isfinite().all()):
        raise InputError(f"Only a finite matrix can be factorised, not one of shape {list(W.shape)} with other values.")
    U, S, Vt = torch.linalg.svd(W.double(), full_matrices=False)
    root = S.sqrt()
    return (U * root).to(W.dtype), (root[:, None] * Vt).to(W.dtype)

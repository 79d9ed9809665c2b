"""MASIL itself as an entry of the benchmark (Khandelwal 2023): concepts are the prior, shots are the data."""

from typing import Any, final

import torch
from torch import Tensor

from masil.errors import InputError
from masil.learner import Masil
from masil.methods.method import Method


@final
class MasilMethod(Method):
    """The learner that people use, on activations made elsewhere; `parameters` are those of `Masil`."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters
        self.learner_: Masil | None = None

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Whiten, name the base classes, and factorise the concept bank."""
        self.learner_ = Masil(backbone=None, **self.parameters).fit(activations, labels.tolist())

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Induce the new classes' vectors."""
        self._learner().learn(activations, labels.tolist())

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class of the nearest vector."""
        return torch.as_tensor(self._learner().predict(activations), dtype=torch.int64)

    def _learner(self) -> Masil:
        if self.learner_ is None:
            raise InputError("Nothing has been taught yet; call `fit` with the base session first.")
        return self.learner_

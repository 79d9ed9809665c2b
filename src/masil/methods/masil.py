"""MASIL itself as an entry of the benchmark (Khandelwal 2023): concepts are the prior, shots are the data."""

from typing import Any, final

import torch
from torch import Tensor

from masil.learner import TRAINED_BALANCE, Masil
from masil.methods.method import Method
from masil.methods.taught import new_classes, taught

# Parameters of the learner that a benchmark decides: it gives activations, and all of them on the processor.
OURS = {"backbone", "weights", "crops", "side", "device", "seed"}


@final
class MasilMethod(Method):
    """The learner that people use, on activations made elsewhere; `parameters` are those of `Masil`."""

    citation = "Khandelwal, MASIL: Maximum Separable Class Representation for Few Shot Class Incremental Learning, 2023"

    def __init__(self, *, total: int | None = None, seed: int = 0, **parameters: Any) -> None:
        super().__init__(total=total, seed=seed)
        self.chosen = parameters
        self.learner_: Masil | None = None

    @classmethod
    def accepts(cls) -> frozenset[str]:
        """Give the learner's parameters, but for those that a benchmark decides."""
        return frozenset(Masil().get_params()) - OURS

    def parameters(self) -> dict[str, Any]:
        """Give the learner's parameters."""
        learner = self._new()
        return {name: getattr(learner, name) for name in self.accepts()}

    def _new(self) -> Masil:
        balance = TRAINED_BALANCE if self.backbone_trained else 1.0
        return Masil(backbone=None, **{"balance": balance, "seed": self.seed, **self.chosen})

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Whiten, name the base classes, and factorise the concept bank."""
        new_classes(activations, labels)
        self.learner_ = self._new().fit(activations, labels.tolist())

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Induce the new classes' vectors."""
        learner = self._learner()
        new_classes(activations, labels, len(learner.memory_.labels))
        learner.learn(activations, labels.tolist())

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class of the nearest vector."""
        return torch.as_tensor(self._learner().predict(activations), dtype=torch.int64)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give embeddings and class vectors."""
        learner = self._learner()
        return learner.base_.embed(activations), learner.memory_.vectors

    def remarks(self) -> dict[str, Any]:
        """Give the mean cosine between concepts, as they are and centred: the paper's table of them."""
        bank = self._learner().base_.bank
        if bank.v < 2:
            return {}
        return {"concept_cosine": {"plain": bank.mean_cosine(), "centred": bank.mean_cosine(centred=True)}}

    def _learner(self) -> Masil:
        return taught(self.learner_)

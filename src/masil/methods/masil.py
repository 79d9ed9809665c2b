"""MASIL as an entry of the benchmark (Khandelwal 2023): concepts are the prior, shots are the data.

`masil` is the learner that people use. `masil-paper` and `nc-etf-cf` are rows of the paper's ablation: the same
sessions on a projection that dot-regression has trained onto a simplex of the base classes alone, with concepts as the
prior of the shots, and with concepts alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from masil.learner import TRAINED_BALANCE, Masil
from masil.methods.method import Geometry, Keeps, Method, Queries, Samples, Task, state
from masil.methods.nc_fscil import MASIL, NcFscil

# Parameters of the learner that a benchmark decides: it gives activations, and all of them on the processor.
OURS = {"backbone", "weights", "crops", "side", "device", "seed"}


@dataclass(kw_only=True)
class _Learner(Method):
    """A method that is a `Masil` on activations."""

    citation = MASIL
    keeps = Keeps.MEANS | Keeps.WEIGHTS
    learner: Masil = state()

    def learn(self, shots: Samples) -> None:
        """Induce the new classes' vectors."""
        self.learner.learn(shots.activations, shots.labels.tolist())

    def predict(self, queries: Queries) -> Tensor:
        """Give the class of the nearest vector."""
        return torch.as_tensor(self.learner.predict(queries.activations), dtype=torch.int64)

    def geometry(self, queries: Queries) -> Geometry:
        """Give embeddings and class vectors."""
        return self.learner.base_.embed(queries.activations), self.learner.memory_.vectors

    def remarks(self) -> dict[str, Any]:
        """Give the mean cosine between concepts, as they are and centred: the paper's table of them."""
        bank = self.learner.base_.bank
        if bank.v < 2:
            return {}
        return {"concept_cosine": {"plain": bank.mean_cosine(), "centred": bank.mean_cosine(centred=True)}}


@final
@dataclass(kw_only=True, init=False)
class MasilMethod(_Learner):
    """The learner that people use, on activations made elsewhere; its parameters are those of `Masil`."""

    name = "masil"
    title = "MASIL"
    ablation_row = "MASIL"
    chosen: Mapping[str, Any] = field(init=False, repr=False)

    def __init__(self, **parameters: Any) -> None:
        self.chosen = parameters

    @classmethod
    def accepts(cls) -> frozenset[str]:
        """Name the learner's parameters, but for those that a benchmark decides."""
        return frozenset(Masil().get_params()) - OURS

    def parameters(self, task: Task) -> dict[str, Any]:
        """Give the learner's parameters."""
        learner = self._new(task)
        return {name: getattr(learner, name) for name in self.accepts()}

    def fit(self, base: Samples, task: Task) -> None:
        """Whiten, name the base classes, and factorise the concept bank."""
        self.learner = self._new(task).fit(base.activations, base.labels.tolist())

    def _new(self, task: Task) -> Masil:
        balance = TRAINED_BALANCE if task.adapted else 1.0
        return Masil(backbone=None, **{"balance": balance, "seed": task.seed, **self.chosen})


@dataclass(kw_only=True)
class _OnTrainedFrame(_Learner):
    """MASIL's sessions on a projection that dot-regression has trained onto a simplex of the base classes alone."""

    alpha: ClassVar[float | Literal["auto"]]
    steps: int = 300
    lr: float = 0.25

    def parameters(self, task: Task) -> dict[str, Any]:
        """Give those of the projection's training, and of the learner behind it."""
        return {**super().parameters(task), **MasilMethod(**self._chosen()).parameters(task)}

    def _chosen(self, **trained: Any) -> dict[str, Any]:
        return {"alpha": self.alpha, "power": 1.0, "balance": 0.0, **trained}

    def fit(self, base: Samples, task: Task) -> None:
        """Train the projection, then factorise the bank."""
        g, vectors = NcFscil(steps=self.steps, lr=self.lr).fit_base_frame(base, task.seed)
        inner = MasilMethod(**self._chosen(embedding=g, class_vectors=vectors))
        inner.fit(base, task)
        self.learner = inner.learner


@final
@dataclass(kw_only=True)
class NcEtfCf(_OnTrainedFrame):
    """Concepts alone: the induced vectors stay as they are."""

    name = "nc-etf-cf"
    title = "NC + ETF loss + CF"
    ablation_row = "NC + ETF loss + CF"
    alpha = math.inf


@final
@dataclass(kw_only=True)
class MasilPaper(_OnTrainedFrame):
    """Concepts as the prior and shots as the data, all of it behind the learnt projection."""

    name = "masil-paper"
    title = "MASIL, to the paper's letter"
    alpha = "auto"

"""MASIL as this package has it: the learner that people use, as an entry of the benchmark.

Concepts are the prior and shots are the data. The paper's own pipeline is in `masil_paper`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from masil.learner import Masil, core_settings, for_trained
from masil.methods.method import Geometry, Keeps, Method, Queries, Samples, Task, state
from masil.methods.nc_fscil import MASIL

# Parameters of the learner that a benchmark decides: it gives activations, and all of them on the processor.
OURS = {"backbone", "weights", "crops", "side", "device", "seed"}


@final
@dataclass(kw_only=True, init=False)
class MasilMethod(Method):
    """The learner that people use, on activations made elsewhere; its parameters are those of `Masil`."""

    name = "masil"
    title = "MASIL (this package)"
    citation = MASIL
    differs = (
        "The paper's own pipeline is `masil-as-written`. Here a frozen backbone is whitened in closed form, base "
        "classes are mean embeddings, not vertices of a simplex, concepts are a prior of a novel class's mean, and no "
        "session trains anything; scores of base and novel classes are balanced."
    )
    keeps = Keeps.MEANS | Keeps.WEIGHTS
    chosen: Mapping[str, Any] = field(init=False, repr=False)
    learner: Masil = state()

    def __init__(self, **parameters: Any) -> None:
        core_settings(Masil(backbone=None, **parameters))  # refuses now what `fit` would
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
        learner = self._new(task)
        self.learner = learner.fit(base.activations, base.labels.tolist(), confidence=False, like=task.protocol)

    def learn(self, shots: Samples) -> None:
        """Induce the new classes' vectors."""
        self.learner.learn(shots.activations, shots.labels.tolist())

    def predict(self, queries: Queries) -> Tensor:
        """Give the class of the nearest vector."""
        return torch.as_tensor(self.learner.predict(queries.activations), dtype=torch.int64)

    def scores(self, queries: Queries) -> Tensor:
        """Give cosines, less what the learner's own balance takes off."""
        z, vectors = self.geometry(queries)
        return z @ vectors.T - self.learner.offsets_

    def geometry(self, queries: Queries) -> Geometry:
        """Give embeddings and class vectors."""
        return self.learner.base_.embed(queries.activations), self.learner.memory_.vectors

    def remarks(self) -> dict[str, Any]:
        """Give the strength of balance, if chosen, and the mean cosine of concepts: the paper's table of them."""
        bank = self.learner.base_.bank
        chosen = {} if self.learner.aim is None else {"strength of balance": self.learner.balance_}
        if bank.v < 2:
            return chosen
        return {"concept_cosine": {"plain": bank.mean_cosine(), "centred": bank.mean_cosine(centred=True)}, **chosen}

    def _new(self, task: Task) -> Masil:
        if task.adapted:
            given = for_trained(self.chosen)
        else:
            given = {**({} if self.chosen.get("aim") else {"balance": 1.0}), **self.chosen}
        return Masil(backbone=None, **{"seed": task.seed, **given})

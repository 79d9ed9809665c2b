"""The rows of MASIL's ablation that are no method of their own, each one change away from the next.

learnable-ce  class vectors are learnt with cross-entropy
nc-ce         class vectors are a fixed simplex, still with cross-entropy
nc-fscil      … and dot-regression draws embeddings to it
nc-etf-cf     the simplex holds the base classes only, and novel vectors are induced from concepts; no fine-tuning
masil-paper   … and fine-tuned on the shots, anchored at the induced vectors: the paper's MASIL on a learnt projection
masil         … with what we add to it: whitening in place of the projection, and scores that are balanced
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, final

from torch import Tensor

from masil.methods.fine_tuned import FineTuned
from masil.methods.masil import MasilMethod
from masil.methods.method import Method
from masil.methods.nc_fscil import NcFscil
from masil.methods.taught import taught

ROWS = {
    "Learnable + CE": "learnable-ce",
    "NC + CE": "nc-ce",
    "NC + ETF loss": "nc-fscil",
    "NC + ETF loss + CF": "nc-etf-cf",
    "MASIL": "masil",
}


@final
class LearnableCe(FineTuned):
    """No frame: class vectors are learnt, new ones start at the embeddings of their class means."""

    citation = MasilMethod.citation
    loss = "cross-entropy"
    framed = False


@final
class NcCe(FineTuned):
    """A fixed frame under cross-entropy, which also pushes embeddings from the other classes' vectors."""

    citation = MasilMethod.citation
    needs_total_classes = True
    loss = "cross-entropy"
    framed = True


class _OnFrame(Method):
    """MASIL's sessions on a projection that dot-regression has trained onto a simplex of the base classes alone."""

    citation = MasilMethod.citation
    alpha: ClassVar[float | Literal["auto"]]

    def __init__(self, *, total: int | None = None, seed: int = 0, steps: int = 300, lr: float = 0.25) -> None:
        super().__init__(total=total, seed=seed)
        self.steps, self.lr = steps, lr
        self.inner_: MasilMethod | None = None

    def parameters(self) -> dict[str, Any]:
        """Give those of the projection's training, and of the learner behind it."""
        return {**super().parameters(), **self._learner().parameters()}

    def _learner(self, **trained: Any) -> MasilMethod:
        return MasilMethod(seed=self.seed, alpha=self.alpha, power=1.0, balance=0.0, **trained)

    def fit(self, activations: Tensor, labels: Tensor) -> None:
        """Train the projection, then factorise the bank."""
        base = NcFscil(seed=self.seed, steps=self.steps, lr=self.lr)
        base.fit(activations, labels)
        g, vectors = base.trained()
        self.inner_ = self._learner(embedding=g, class_vectors=vectors)
        self.inner_.fit(activations, labels)

    def learn(self, activations: Tensor, labels: Tensor) -> None:
        """Induce the new classes' vectors."""
        self._inner().learn(activations, labels)

    def predict(self, activations: Tensor) -> Tensor:
        """Give the class of the nearest vector."""
        return self._inner().predict(activations)

    def geometry(self, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Give embeddings and class vectors."""
        return self._inner().geometry(activations)

    def _inner(self) -> MasilMethod:
        return taught(self.inner_)


@final
class NcEtfCf(_OnFrame):
    """Concepts alone: the induced vectors stay as they are."""

    alpha = math.inf


@final
class MasilPaper(_OnFrame):
    """Concepts as the prior and shots as the data, all of it behind the learnt projection."""

    alpha = "auto"

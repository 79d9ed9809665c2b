"""iCaRL, EEIL and NCM as the FSCIL literature's tables have them, which is not what their authors do.

The tables' rows go back to Tao et al. (2020). A session trains the last residual block and a linear classifier of unit
activations. The cross-entropy sees the shots alone, all in one batch; 400 base images are kept once and for all, no
novel ones, and hold the old answers in place in the way that gives a row its name. What the tables show is this
setting's collapse: nothing ever tells an old image that it is not of a new class.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.eeil import distillation
from masil.methods.method import Keeps, Published, Queries, Samples, Task, state
from masil.methods.network import BlockMethod
from masil.methods.replay import SCALE, herd
from masil.protocol import by_class

SPREAD = 0.001  # deviation of a new class's first weights


@dataclass(kw_only=True)
class InTables(BlockMethod):
    """Train the last block and the classifier on the shots; base images that are kept must be answered as before."""

    citation = "Tao et al., Few-Shot Class-Incremental Learning, CVPR 2020"
    differs = (
        "As the tables' code, but for three things: batch norms keep their statistics, kept images are those that "
        "herding chooses, and the last step counts, not the one that is best on test images."
    )
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS
    published: ClassVar[Published] = {
        "cub200": {"lr": 0.01, "steps": 100},
        "miniimagenet": {"steps": 100},
    }
    trains_fast: ClassVar[bool] = True
    fixed_rows: ClassVar[bool] = False  # whether the weights of old classes stay as they are

    base_exemplars: int = 400
    steps: int = 70
    lr: float = 0.1
    rows: Tensor = state()  # [k d], the classifier
    kept: Tensor = state()  # [m c·h·w], base images where they enter the last block
    kept_labels: Tensor = state()

    @abstractmethod
    def hold(self, before: Tensor, now: Tensor, rows: Tensor, old: Tensor) -> Tensor:
        """Give the loss that holds kept images in place: unit activations before and now, classifiers now and old."""

    def fit(self, base: Samples, task: Task) -> None:
        """Take over the classifier of the base session, or the class means, and choose the images that are kept."""
        self.take_network(base, task)
        unit = functional.normalize(base.activations)
        trained = task.trained
        known = trained.class_vectors if trained is not None and trained.projection is None else None
        self.rows = SCALE * functional.normalize(class_means(unit, base.labels) if known is None else known)
        each = max(1, self.base_exemplars // len(self.rows))
        parts = by_class(base.labels, len(self.rows))
        kept = base.some(torch.cat([rows[herd(unit[rows], each)] for rows in parts]))
        self.kept, self.kept_labels = self.entering(kept), kept.labels

    def learn(self, shots: Samples) -> None:
        """Train on the shots, the rate falling to a tenth for the last seventh of the steps."""
        x, labels, old = self.entering(shots), shots.labels, self.rows.clone()
        before = self.unit_features(self.kept, as_trained=True)
        fresh = SPREAD * torch.randn(shots.classes - len(old), old.shape[1], generator=self.generator)
        rows = [fresh] if self.fixed_rows else [old.clone(), fresh]

        def loss(chosen: Tensor) -> Tensor:
            classifier = torch.cat([old, *rows] if self.fixed_rows else rows)
            z = functional.normalize(self.block(x[chosen]))
            now = functional.normalize(self.block(self.kept))
            return functional.cross_entropy(z @ classifier.T, labels[chosen]) + self.hold(before, now, classifier, old)

        learnt = [*self.block.parameters(), *rows]

        def train(rate: float) -> None:
            last = self.steps // 7
            for steps, lr in ((self.steps - last, rate), (last, rate / 10)):
                self.fine_tune(learnt, loss, len(x), steps=steps, lr=lr)

        self.steadily(learnt, train, lambda: loss(torch.arange(len(x))), self.lr)
        self.rows = torch.cat([old, *rows] if self.fixed_rows else rows)

    def scores(self, queries: Queries) -> Tensor:
        """Give the products with the classifier, of what is asked run through the block as it is now."""
        return functional.normalize(self.features_now(queries)) @ self.rows.T


@final
@dataclass(kw_only=True)
class ICaRLInTables(InTables):
    """Kept images are distilled: softmaxes over the old classes, at temperature 2."""

    name = "icarl-table"
    title = "iCaRL (as in FSCIL tables)"

    def hold(self, before: Tensor, now: Tensor, rows: Tensor, old: Tensor) -> Tensor:
        """Give the distillation."""
        return distillation(now @ rows.T, before @ old.T, [len(old)])


@final
@dataclass(kw_only=True)
class EEILInTables(InTables):
    """Kept images are distilled, and their labels count a little."""

    name = "eeil-table"
    title = "EEIL (as in FSCIL tables)"
    published: ClassVar[Published] = {
        "cub200": {"lr": 0.01, "steps": 100, "weight": 0.8},
        "miniimagenet": {"steps": 100},
    }

    weight: float = 1.0
    labels: float = 0.004  # weight of the kept images' own labels

    def hold(self, before: Tensor, now: Tensor, rows: Tensor, old: Tensor) -> Tensor:
        """Give the distillation and the cross-entropy."""
        logits = now @ rows.T
        named = functional.cross_entropy(logits, self.kept_labels)
        return self.weight * distillation(logits, before @ old.T, [len(old)]) + self.labels * named


@final
@dataclass(kw_only=True)
class NCMInTables(InTables):
    """Embeddings of kept images must not turn; the weights of old classes are fixed."""

    name = "lucir-table"
    title = "NCM (as in FSCIL tables)"
    published: ClassVar[Published] = {
        "cub200": {"lr": 0.01, "steps": 100, "keep": 1.0},
        "miniimagenet": {"steps": 100, "keep": 1.0},
    }
    fixed_rows = True

    keep: float = 50.0

    def hold(self, before: Tensor, now: Tensor, rows: Tensor, old: Tensor) -> Tensor:
        """Give λ (1 − cos), the mean over kept images."""
        return self.keep * (1 - (before * now).sum(1).mean())

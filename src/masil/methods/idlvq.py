"""Our reading of IDLVQ: a reference vector for each class, old ones following an exemplar (Chen and Lee 2021)."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import Keeps, Queries, Samples, Task, state
from masil.methods.network import BlockMethod
from masil.protocol import Protocol, by_class
from masil.training import BaseLoss, Recipe


@final
@dataclass(eq=False, kw_only=True)
class IdlvqLoss(BaseLoss):
    """A margin between the squared distances to the own reference and to the nearest other, and `intra` of the first.

    Activations have unit length; the references are free.
    """

    name: ClassVar[str] = "idlvq"
    margin: float = 0.5
    intra: float = 0.1

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the references."""
        return self.place(torch.randn(classes, features, generator=generator, device=generator.device))

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the mean of both labels' losses."""
        assert self.vectors is not None
        squares = squared_distances(functional.normalize(activations), self.vectors)
        own, other = (self._losses(squares, index) for index in (labels, partners))
        return (lam * own + (1 - lam) * other).mean()

    def _losses(self, squares: Tensor, labels: Tensor) -> Tensor:
        return margin_losses(squares, labels, self.margin) + self.intra * squares.gather(1, labels[:, None])[:, 0]


@final
@dataclass(kw_only=True)
class Idlvq(BlockMethod):
    """Train the last block and new references; features of old exemplars are held, and old references corrected."""

    name = "idlvq"
    title = "our reading of IDLVQ"
    citation = "Chen and Lee, Incremental Few-Shot Learning via Vector Quantization in Deep Embedded Space, ICLR 2021"
    differs = (
        "There is no code. Margin, weights and rates are ours: the margin is the median distance between nearest "
        "references. One exemplar a class corrects its reference; the last block alone is trained, batch norms fixed."
    )
    keeps = Keeps.MEANS | Keeps.EXEMPLARS | Keeps.WEIGHTS

    intra: float = 0.1
    forgetting: float = 10.0  # weight of the exemplars' squared drift
    steps: int = 50
    lr: float = 1e-3
    references: Tensor = state()  # [k d]
    exemplars: Tensor = state()  # [k c·h·w], one image a class where it enters the last block

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Learn the references with the network."""
        return usual.trained_by(self.name, IdlvqLoss(intra=self.intra))

    def fit(self, base: Samples, task: Task) -> None:
        """Take the references that were learnt, or the class means, and the image nearest to each."""
        self.take_network(base, task)
        self.exemplars = torch.empty(0, self.frozen.network.features)
        unit = functional.normalize(base.activations.float())
        learnt = task.own_vectors
        self.references = class_means(unit, base.labels) if learnt is None else learnt.clone()
        self._keep(base, unit, 0)

    def learn(self, shots: Samples) -> None:
        """Start new references at the means of the shots, train, and move old references as their exemplars moved."""
        known, x = len(self.references), self.entering(shots)
        new = class_means(self.unit_features(x), shots.labels, known)
        before = self.unit_features(self.exemplars)
        margin = margin_between(torch.cat([self.references, new]))

        def loss(chosen: Tensor) -> Tensor:
            f, labels = functional.normalize(self.block(x[chosen])), shots.labels[chosen]
            squares = squared_distances(f, torch.cat([self.references, new]))
            own = squares.gather(1, labels[:, None])[:, 0]
            drift = (functional.normalize(self.block(self.exemplars)) - before).square().sum(1).mean()
            return (margin_losses(squares, labels, margin) + self.intra * own).mean() + self.forgetting * drift

        self.fine_tune_steadily([*self.block.parameters(), new], loss, len(x), steps=self.steps, lr=self.lr)
        drift = self.unit_features(self.exemplars) - before
        self.references = torch.cat([self.references + drift, new.detach()])
        self._keep(shots, self.unit_features(x), known)

    def scores(self, queries: Queries) -> Tensor:
        """Give minus the squared distance to each reference."""
        return -squared_distances(functional.normalize(self.features_now(queries)), self.references)

    def _keep(self, samples: Samples, unit: Tensor, known: int) -> None:
        """Keep of each new class the image nearest to its reference."""
        parts = by_class(samples.labels - known, len(self.references) - known)
        distances = (unit - self.references[samples.labels]).norm(dim=1)
        chosen = torch.stack([part[distances[part].argmin()] for part in parts])
        self.exemplars = torch.cat([self.exemplars, self.entering(samples.some(chosen))])


def squared_distances(rows: Tensor, references: Tensor) -> Tensor:
    """Give ‖f_i − m_j‖², [n k]."""
    return rows.square().sum(1, keepdim=True) - 2 * rows @ references.T + references.square().sum(1)


def margin_losses(squares: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Give max(0, margin + own − nearest other) for squared distances [n k]."""
    own = squares.gather(1, labels[:, None])[:, 0]
    others = squares.scatter(1, labels[:, None], torch.inf)
    return torch.relu(margin + own - others.min(1).values)


def margin_between(references: Tensor) -> float:
    """Give the median over references of the squared distance to the nearest other."""
    squares = squared_distances(references, references).fill_diagonal_(torch.inf)
    return float(squares.min(1).values.clamp_min(0).median())

"""DSN: every session adds a gated branch of nodes, and old classes are recalled as Gaussians (Yang et al. 2022)."""

import copy
from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.hardware import resolve_device
from masil.methods.descent import take_step
from masil.methods.method import Keeps, LargestScore, Published, Queries, Samples, Task, state
from masil.protocol import by_class
from masil.training import minimise_by_sgd

BASE_BATCH, BASE_RATE = 256, 0.1  # as for other maps of activations, see `masil.training.train_map`
TEMPERATURE = 0.5  # of the distillation


@final
@dataclass
class Branch:
    """What a session adds: d nodes, a gate that opens each of them, and the rows of its classes."""

    nodes: Tensor  # W_s [d d]
    gate: Tensor  # α in [0, 1] [d]; 0 before the first batch
    rows: Tensor  # V_s [way d]


@final
@dataclass
class ClassGaussians:
    """Class c is N(μ_c, F_cᵀ F_c). Its factor [r_c d] has a row for each direction in which the class is spread."""

    means: Tensor  # μ [k d]
    factors: list[Tensor]

    @classmethod
    def fit(cls, rows: Tensor, labels: Tensor, rank: int) -> Self:
        """Take the classes 0 … k − 1 from their rows, of each covariance the `rank` largest directions."""
        means = class_means(rows, labels)
        return cls(means, [covariance_factor(rows[part], rank) for part in by_class(labels, len(means))])

    def add(self, means: Tensor, factors: list[Tensor]) -> None:
        """Append classes."""
        self.means = torch.cat([self.means, means])
        self.factors.extend(factors)

    def sample(self, each: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw `each` rows of every class; give them with their labels."""
        drawn = [
            mean + torch.randn(each, len(factor), generator=generator) @ factor
            for mean, factor in zip(self.means, self.factors, strict=True)
        ]
        return torch.cat(drawn), torch.arange(len(drawn)).repeat_interleave(each)


@final
@dataclass(kw_only=True)
class Dsn(LargestScore):
    """Base classes are compared with o = unit(fc₁ x), those of session s with unit(γ o + α_s ∘ cos(x, W_s)).

    The gate is α = sigmoid((1 + epoch) · mean of the nodes over the new images of a batch), so that it sharpens while
    its mean is punished: nodes that are not needed close. New classes borrow covariances from base classes like them.
    """

    name = "dsn"
    title = "DSN (head only)"
    citation = "Yang et al., Dynamic Support Network for Few-Shot Class Incremental Learning, TPAMI 2022"
    differs = (
        "The backbone is shared, so fc₁ and the base rows are trained on its activations; shots are not augmented. "
        "Covariances are kept to a limited rank. The last epoch counts, where the original keeps the best on test data."
    )
    trains = "head"
    counts = ("rank", "batch")
    keeps = Keeps.MEANS | Keeps.COVARIANCE | Keeps.WEIGHTS
    published: ClassVar[Published] = {
        "miniimagenet": {"epochs": 50, "samples": 4},
        "cub200": {"lr": 0.05, "epochs": 35, "batch": 128, "samples": 4, "all_layers": True},
    }

    scale: float = 16.0
    share: float = 0.2  # γ, of the shared feature
    compression: float = 0.1  # weight of the gate's mean
    samples: int = 5  # drawn of each class in every epoch
    rank: int = 64  # of covariances
    base_epochs: int = 10
    epochs: int = 70
    batch: int = 256
    lr: float = 0.1
    all_layers: bool = False  # a session trains fc₁ and all rows and branches, not only its own
    device: torch.device = state()  # of all that is trained; the Gaussians stay on the processor
    fc: Tensor = state()  # fc₁ᵀ [d d]
    base_rows: Tensor = state()  # [k₀ d]
    branches: list[Branch] = state()
    gaussians: ClassGaussians = state()
    generator: torch.Generator = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Train fc₁, from the identity, and the base rows, from the class means; remember classes as Gaussians."""
        self.generator = task.generator()
        self.device = resolve_device(task.device)
        x, labels = functional.normalize(base.activations.float()), base.labels.to(self.device)
        self.base_rows = functional.normalize(class_means(x, base.labels)).to(self.device)
        x = x.to(self.device)
        self.fc = torch.eye(x.shape[1], device=self.device)
        self.branches = []

        def loss(chosen: Tensor) -> Tensor:
            return functional.cross_entropy(self.logits(x[chosen]), labels[chosen])

        steps = self.base_epochs * -(-len(x) // BASE_BATCH)
        minimise_by_sgd(
            [self.fc, self.base_rows], loss, len(x),
            steps=steps, batch=BASE_BATCH, rate=BASE_RATE, generator=self.generator,
        )  # fmt: skip
        self.gaussians = ClassGaussians.fit(base.activations.float(), base.labels, self.rank)

    def learn(self, shots: Samples) -> None:
        """Add a branch, train it on the shots and on rows drawn of all classes, and remember the new classes."""
        x, known = shots.activations.float(), len(self.gaussians.means)
        means = class_means(x, shots.labels, known)
        gate = torch.zeros(len(self.fc), device=self.device)
        branch = Branch(self.fc.T.clone(), gate, self._shared(means.to(self.device)))
        self._remember(shots, means, branch)
        before = copy.deepcopy(self) if self.all_layers else None
        self.branches.append(branch)
        learnt = [branch.nodes, branch.rows]
        if self.all_layers:
            earlier = [tensor for added in self.branches[:-1] for tensor in (added.nodes, added.rows)]
            learnt += [self.fc, self.base_rows, *earlier]
        optimiser = torch.optim.SGD(
            [tensor.requires_grad_() for tensor in learnt], self.lr, momentum=0.9, dampening=0.5
        )
        for epoch in range(self.epochs):
            drawn, drawn_labels = self.gaussians.sample(self.samples, self.generator)
            rows = torch.cat([x, drawn]).to(self.device)
            labels = torch.cat([shots.labels, drawn_labels]).to(self.device)
            for chosen in torch.split(torch.randperm(len(rows), generator=self.generator), self.batch):
                loss = self._loss(rows[chosen], labels[chosen], epoch, known)
                if before is not None:  # otherwise old columns do not change, and there is nothing to distil
                    loss = loss + distillation(self.logits(rows[chosen]), before.logits(rows[chosen]))
                take_step(optimiser, loss)
        for tensor in learnt:
            tensor.requires_grad_(False)

    def scores(self, queries: Queries) -> Tensor:
        """Give scaled cosines, each session's classes by their own branch."""
        return self.logits(queries.activations.float().to(self.device)).cpu()

    def logits(self, x: Tensor, gates: Tensor | None = None) -> Tensor:
        """Give scaled cosines to all rows [n k]; `gates` [n d] replace those of the last branch."""
        shared = self._shared(x)
        parts = [shared @ functional.normalize(self.base_rows).T]
        for number, branch in enumerate(self.branches):
            gate = gates if gates is not None and number == len(self.branches) - 1 else branch.gate
            feature = functional.normalize(self.share * shared + gate * node_cosines(x, branch.nodes))
            parts.append(feature @ functional.normalize(branch.rows).T)
        return self.scale * torch.cat(parts, 1)

    def _loss(self, x: Tensor, labels: Tensor, epoch: int, known: int) -> Tensor:
        """Give the cross-entropy and the compression, and leave the gate to old rows and to predictions."""
        branch, new = self.branches[-1], labels >= known
        if not bool(new.any()):
            return functional.cross_entropy(self.logits(x), labels)
        gate = open_gate(node_cosines(x[new], branch.nodes), epoch)
        logits = self.logits(x, torch.where(new[:, None], gate, branch.gate))
        branch.gate = gate.detach()
        return functional.cross_entropy(logits, labels) + self.compression * gate.mean()

    def _remember(self, shots: Samples, means: Tensor, branch: Branch) -> None:
        """Keep each new class as its mean and a covariance: its own and those of base classes, as far as it is alike.

        The weights are softmax of the cosines of the shots to the base rows and to the class's own row, averaged.
        """
        base = len(self.base_rows)
        shared, factors = self._shared(shots.activations.float().to(self.device)), []
        for label, row in enumerate(branch.rows, start=len(self.gaussians.means)):
            own = shots.labels == label
            vectors = torch.cat([functional.normalize(self.base_rows), row[None]])
            weights = torch.softmax(shared[own.to(self.device)] @ vectors.T, 1).mean(0).cpu()
            parts = [*self.gaussians.factors[:base], covariance_factor(shots.activations[own].float(), self.rank)]
            factors.append(mixed_factor(parts, weights, self.rank))
        self.gaussians.add(means, factors)

    def _shared(self, x: Tensor) -> Tensor:
        """Give o = unit(fc₁ x)."""
        return functional.normalize(functional.normalize(x) @ self.fc)


def distillation(now: Tensor, before: Tensor) -> Tensor:
    """Give KL(before ‖ now) of logits over the old classes, at temperature ½."""
    log_shares = torch.log_softmax(now[:, : before.shape[1]] / TEMPERATURE, 1)
    return functional.kl_div(log_shares, torch.softmax(before / TEMPERATURE, 1), reduction="batchmean")


def covariance_factor(rows: Tensor, rank: int) -> Tensor:
    """Give F [r d] with FᵀF the covariance of the rows [n d], or its best approximation of that rank."""
    return reduced((rows - rows.mean(0)) / max(1, len(rows) - 1) ** 0.5, rank)


def mixed_factor(factors: list[Tensor], weights: Tensor, rank: int) -> Tensor:
    """Give the factor of Σ_j w_j F_jᵀF_j, its best approximation where `rank` is smaller."""
    return reduced(torch.cat([weight.sqrt() * part for weight, part in zip(weights, factors, strict=True)]), rank)


def reduced(factor: Tensor, rank: int) -> Tensor:
    """Give the principal rows of a factor [r d], longest first, at most `rank`: the same covariance, or nearly."""
    _, lengths, directions = torch.linalg.svd(factor, full_matrices=False)
    principal: Tensor = lengths[:rank, None] * directions[:rank]
    return principal


def node_cosines(x: Tensor, nodes: Tensor) -> Tensor:
    """Give the cosine of each row [n d] to each node [d d]."""
    return functional.normalize(x) @ functional.normalize(nodes).T


def open_gate(cosines: Tensor, epoch: int) -> Tensor:
    """Give sigmoid((1 + epoch) · mean over rows), [d]: it sharpens from epoch to epoch."""
    return torch.sigmoid((1 + epoch) * cosines.mean(0))

"""TOPIC: a neural gas describes the features, and images of its nodes hold the old ones in place (Tao et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.descent import take_step
from masil.methods.method import Keeps, Published, Queries, Samples, Task, state
from masil.methods.network import BlockMethod
from masil.protocol import Protocol
from masil.training import BaseLoss, Recipe

SCALE = 16.0  # length of the rows where the backbone was trained by another loss
GAS_STEPS = 20_000  # at most, each with one image
MARGIN = 0.5  # between a new node and its neighbours
RATE, REACH, LIFETIME = 0.02, 1.0, 200  # of the gas: η, α, and the age at which a link is cut


@final
@dataclass(eq=False, kw_only=True)
class TopicLoss(BaseLoss):
    """Cross-entropy of products with unit activations; the rows have no bias and any length."""

    name: ClassVar[str] = "topic"

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the rows."""
        return self.place(torch.randn(classes, features, generator=generator, device=generator.device))

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Give the cross-entropy to both labels of a mixed image."""
        assert self.vectors is not None
        log_shares = torch.log_softmax(functional.normalize(activations) @ self.vectors.T, 1)
        own, other = (log_shares.gather(1, index[:, None])[:, 0] for index in (labels, partners))
        return -(lam * own + (1 - lam) * other).mean()


@final
@dataclass
class NeuralGas:
    """Nodes [m d] and, for each pair, the age of their link, −1 where there is none (Martinetz and Schulten 1991)."""

    nodes: Tensor  # float [m d]
    ages: Tensor  # int64 [m m], symmetric

    @classmethod
    def start(cls, rows: Tensor, count: int, generator: torch.Generator) -> Self:
        """Begin at `count` of the rows, without links."""
        nodes = rows[torch.randperm(len(rows), generator=generator)[:count]].clone()
        return cls(nodes, torch.full((len(nodes), len(nodes)), -1))

    def step(self, row: Tensor) -> None:
        """Move the node of rank i by η e^{−i/α} towards the row, link the two nearest and age the winner's links."""
        order = (self.nodes - row).square().sum(1).argsort()
        shares = torch.empty(len(order)).scatter(0, order, RATE * torch.exp(-torch.arange(len(order)) / REACH))
        self.nodes += shares[:, None] * (row - self.nodes)
        if len(order) < 2:
            return
        winner, second = order[0], order[1]
        ages = self.ages[winner]
        ages = torch.where(ages >= 0, ages + 1, ages)
        ages[second] = 0
        ages[ages > LIFETIME] = -1
        self.ages[winner] = self.ages[:, winner] = ages

    def add(self, rows: Tensor) -> None:
        """Append nodes that are linked with none."""
        ages = torch.full((len(self.nodes) + len(rows),) * 2, -1)
        ages[: len(self.nodes), : len(self.nodes)] = self.ages
        self.nodes, self.ages = torch.cat([self.nodes, rows]), ages

    def near(self, row: Tensor) -> Tensor:
        """Give the node nearest to a row, and those that are linked with it."""
        winner = int((self.nodes - row).square().sum(1).argmin())
        near = self.ages[winner] >= 0
        near[winner] = True
        return near.nonzero()[:, 0]


@final
@dataclass(kw_only=True)
class Topic(BlockMethod):
    """Train the last block on the shots, while images of the base session's nodes keep the features they had.

    The loss of a session is the cross-entropy over all classes, in which rows of earlier sessions are constants;
    `anchor` times the mean squared change of the anchors' features; `pull` times half the squared distance of shots to
    the node of their class; and `push` times what new nodes lack of a margin to their neighbours among other classes.

    New rows begin at 0 and win nothing before they are about as long as old ones, so their rate decides how much of a
    session is learnt. It is chosen on base classes that play novel, while the block is held.
    """

    name = "topic"
    title = "TOPIC"
    citation = "Tao et al., Few-Shot Class-Incremental Learning, CVPR 2020"
    differs = (
        "Pull and push are not in the released code: half the squared distance, and a hinge. Its weights of anchors by "
        "variance are all 1 for unit features, so they are left out. The last epoch counts, where the code takes one "
        "by test accuracy; shots are not augmented. Rows on a shared backbone see centred features and have length 16; "
        "the rate of new rows, .1 and .01 in the original, is chosen on base classes."
    )
    counts = ("nodes",)
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS
    tried = {"row_lr": (1.0, 0.3, 0.1)}  # noqa: RUF012
    rehearsed = {"lr": 0.0}  # noqa: RUF012
    published: ClassVar[Published] = {
        "cifar100": {"lr": 0.1},
        "miniimagenet": {"lr": 0.1, "push": 1e-5, "epochs": 100},
        "cub200": {"pull": 5e-5, "push": 1e-6, "lr": 0.01, "node_lr": 0.5, "epochs": 120},
    }

    trains_fast: ClassVar[bool] = True

    nodes: int = 400  # in all, each with one image
    anchor: float = 350.0
    pull: float = 0.3
    push: float = 1e-4
    lr: float = 0.003  # of the last block
    row_lr: float | None = None
    node_lr: float = 0.1
    epochs: int = 70
    rows: Tensor = state()  # [k d]
    centre: Tensor = state()  # [d], the mean of the base session's unit activations; 0 on a backbone of its own
    gas: NeuralGas = state()
    anchors: Tensor = state()  # [m c·h·w], images of the nodes where they enter the last block

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train linear rows over unit features."""
        return usual.trained_by(self.name, TopicLoss())

    def fit(self, base: Samples, task: Task) -> None:
        """Spread the gas over the base features, and keep the image nearest to each node among its own class."""
        self.take_network(base, task)
        f = functional.normalize(base.activations.float())
        self.centre = f.mean(0) * (not task.own)
        means = SCALE * functional.normalize(class_means(self._centred(f), base.labels))
        self.rows = means if task.own_vectors is None else task.own_vectors
        self.gas = NeuralGas.start(f, min(self.nodes, max(1, len(f) // 2)), self.generator)
        for row in f[torch.randperm(len(f), generator=self.generator)[:GAS_STEPS]]:
            self.gas.step(row)
        self.anchors = self.entering(base.some(node_images(self.gas.nodes, f, base.labels)))

    def learn(self, shots: Samples) -> None:
        """Train the last block, rows and nodes of the new classes, all shots at once."""
        labels, known = shots.labels, len(self.rows)
        f = functional.normalize(self.features_now(shots))
        nodes = class_means(f, labels, known)
        new = 0.001 * torch.randn(nodes.shape, generator=self.generator)
        neighbours = [self.gas.nodes[self.gas.near(node)] for node in nodes]
        row_lr, moves = self.value("row_lr"), self.lr > 0
        rates = [([new], row_lr), ([nodes], self.node_lr)]
        if moves:
            x, before = self.entering(shots), self.unit_features(self.anchors, as_trained=True)
            rates.append(([*self.block.parameters()], self.lr))

        def loss() -> Tensor:
            now, held = f, torch.zeros(())
            if moves:
                now = functional.normalize(self.block(x))
                held = self.change_of_anchors(before)
            centred = self._centred(now)
            logits = torch.cat([(centred @ self.rows.T).detach(), centred @ new.T], 1)
            drawn = 0.5 * (now - nodes[labels - known]).square().sum(1).mean()
            named = functional.cross_entropy(logits, labels)
            return named + self.anchor * held + self.pull * drawn + self.push * lacking_margin(nodes, neighbours)

        def train(rate: float) -> None:
            groups = [
                {"params": [weight.requires_grad_() for weight in part], "lr": lr * rate / row_lr} for part, lr in rates
            ]
            optimiser = torch.optim.SGD(groups, momentum=0.9, nesterov=True, weight_decay=5e-4)
            schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [decay_at(self.epochs)])
            for _ in range(self.epochs):
                value = loss()
                if not bool(value.isfinite()):
                    break  # further steps would not lead back: the rate is too high
                take_step(optimiser, value, schedule)

        self.steadily([weight for part, _ in rates for weight in part], train, loss, row_lr)
        self.block.requires_grad_(False)
        self.rows = torch.cat([self.rows, new.detach()])
        self.gas.add(nodes.detach())

    def scores(self, queries: Queries) -> Tensor:
        """Give the products with all rows; the nodes have no say."""
        return self._centred(functional.normalize(self.features_now(queries))) @ self.rows.T

    def change_of_anchors(self, before: Tensor) -> Tensor:
        """Give the mean squared change of the anchors' unit features since they were `before`."""
        return (functional.normalize(self.block(self.anchors)) - before).square().mean()

    def _centred(self, f: Tensor) -> Tensor:
        """Take off what all unit features share: new rows that held it would answer every image."""
        return functional.normalize(f - self.centre)


def decay_at(epochs: int) -> int:
    """Give the epoch at which rates fall to a tenth: ten before the last, as published, of few epochs a seventh."""
    return max(epochs - 10, 6 * epochs // 7)


def node_images(nodes: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """Give for each node that wins any row the position of the row nearest to it, of the class it wins most of."""
    distances = torch.cdist(rows, nodes)
    winners = distances.argmin(1)
    chosen = []
    for node in torch.unique(winners).tolist():
        won = (winners == node).nonzero()[:, 0]
        own = won[labels[won] == torch.mode(labels[won]).values]
        chosen.append(own[distances[own, node].argmin()])
    return torch.stack(chosen)


def lacking_margin(nodes: Tensor, neighbours: list[Tensor]) -> Tensor:
    """Sum what the distances of new nodes to one another and to their neighbours lack of the margin."""
    pairs = torch.triu_indices(len(nodes), len(nodes), 1)
    distances = [(nodes[pairs[0]] - nodes[pairs[1]]).norm(dim=1)]
    distances += [(near - node).norm(dim=1) for near, node in zip(neighbours, nodes, strict=True)]
    return torch.relu(MARGIN - torch.cat(distances)).sum()

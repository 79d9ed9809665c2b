"""iCaRL: exemplars are replayed, old outputs distilled, the nearest mean of exemplars decides (Rebuffi et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.collapse import class_means
from masil.methods.method import Keeps, NearestVector, Queries, Samples, Task, state
from masil.methods.network import FrozenPart, LastBlock, fine_tune
from masil.methods.replay import EACH, SCALE, Exemplars, ExpandingClassifier, herd, train_session
from masil.protocol import Protocol
from masil.training import BaseLoss, LinearFeatures, Recipe, soft_labels, train_map


@final
@dataclass(eq=False, kw_only=True)
class ICaRLLoss(BaseLoss):
    """One sigmoid a class: the binary cross-entropy of σ(s (cos − ½)), summed over classes."""

    name: ClassVar[str] = "icarl"
    scale: float = SCALE

    def build(self, features: int, classes: int, generator: torch.Generator) -> Self:
        """Draw the class vectors."""
        return self.place(torch.randn(classes, features, generator=generator, device=generator.device))

    def forward(self, activations: Tensor, labels: Tensor, partners: Tensor, lam: Tensor) -> Tensor:
        """Judge every class alone; the label of a mixed image is its share."""
        assert self.vectors is not None
        logits = self.scale * (functional.normalize(activations) @ functional.normalize(self.vectors).T - 0.5)
        return sigmoid_loss(logits, soft_labels(labels, partners, lam, len(self.vectors)))


@final
@dataclass(kw_only=True)
class ICaRL(NearestVector):
    """Train one sigmoid per class, new ones towards labels and old ones towards what they said before the session.

    A class is the mean of its exemplars' unit embeddings, worked out anew after every session.
    """

    name = "icarl"
    title = "iCaRL"
    citation = "Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017"
    differs = (
        "The original trains its whole network in every session. Here the backbone is frozen after the base session; "
        "a linear map of its activations is trained in sessions, so it forgets far less than published."
    )
    trains = "head"
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS

    exemplars: int = EACH
    net: ExpandingClassifier = state()
    memory: Exemplars = state()
    generator: torch.Generator = state()

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train one sigmoid a class."""
        return usual.trained_by(self.name, ICaRLLoss())

    def fit(self, base: Samples, task: Task) -> None:
        """Train on the labels alone, then choose exemplars. A backbone of its own brings the sigmoids along."""
        self.generator = torch.Generator().manual_seed(task.seed)
        if task.own and task.trained is not None:
            g = LinearFeatures.identity(base.activations, centred=False)
            common = functional.normalize(g(base.activations)).mean(0)
            self.net = ExpandingClassifier(g, task.trained.class_vectors, -SCALE / 2, common)
        else:
            loss = ICaRLLoss()
            g = train_map(base.activations, base.labels, loss, seed=task.seed)
            self.net = ExpandingClassifier(g, loss.class_vectors(int(base.labels.max()) + 1), -SCALE / 2)
        self.memory = Exemplars.empty(base.activations.shape[1], self.exemplars)
        self._remember(base)

    def learn(self, shots: Samples) -> None:
        """Train on exemplars and shots, then choose exemplars among the shots."""
        net = self.net
        activations, labels = self.memory.with_shots(shots)
        before = torch.sigmoid(net.logits(activations))
        net.grow(net.new_means(shots))
        targets = functional.one_hot(labels, len(net.rows)).float()
        targets[:, : before.shape[1]] = before

        def loss(rows: Tensor) -> Tensor:
            return sigmoid_loss(net.logits(activations[rows]), targets[rows])

        train_session([net.g.matrix, net.rows, net.bias], loss, len(labels), self.generator)
        self._remember(shots)

    def embed(self, queries: Queries) -> Tensor:
        """Give embeddings, which are compared with the means of exemplars."""
        return self.net.embed(queries.activations)

    def _remember(self, samples: Samples) -> None:
        self.memory.add(samples, self.net.embed)
        self.vectors = class_means(self.net.embed(self.memory.activations), self.memory.labels)


@final
@dataclass(kw_only=True)
class ICaRLNetwork(NearestVector):
    """iCaRL as in the FSCIL tables: a session trains the network's last block, not only what stands on it.

    Of the base session `base_exemplars` images are kept in all, of a novel class `each`.
    """

    name = "icarl-network"
    title = "iCaRL (last block trained)"
    citation = ICaRL.citation
    differs = "The original trains all layers; the network is frozen up to its last block, as in the FSCIL tables."
    sees = "images"
    trains = "network"
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS

    base_exemplars: int = 400
    each: int = 1
    steps: int = 100
    batch: int = 128
    lr: float = 0.01
    frozen: FrozenPart = state()
    block: LastBlock = state()
    rows: Tensor = state()  # w [k d]
    bias: Tensor = state()  # b [k]
    common: Tensor = state()  # [d], what all unit activations share
    kept: Tensor = state()  # [m c·h·w], exemplars where they enter the last block
    kept_labels: Tensor = state()
    generator: torch.Generator = state()

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train one sigmoid a class."""
        return usual.trained_by(self.name, ICaRLLoss())

    def fit(self, base: Samples, task: Task) -> None:
        """Choose exemplars among the base images; sigmoids start at the trained vectors or at the class means."""
        assert task.backbone is not None
        assert base.images is not None
        self.generator = torch.Generator().manual_seed(task.seed)
        self.frozen = FrozenPart(task.backbone, task.device)
        self.block = LastBlock(task.backbone, self.frozen.network.shape)
        unit = functional.normalize(base.activations)
        self.common = unit.mean(0)
        trained = task.trained.class_vectors if task.own and task.trained is not None else None
        self.rows = functional.normalize(class_means(unit, base.labels) - self.common if trained is None else trained)
        self.bias = torch.full((len(self.rows),), -SCALE / 2)
        self.kept, self.kept_labels = torch.empty(0, self.frozen.network.features), base.labels[:0]
        self._keep(base, unit, max(1, self.base_exemplars // len(self.rows)))

    def learn(self, shots: Samples) -> None:
        """Train the last block and the sigmoids on exemplars and shots, then keep exemplars of the shots."""
        assert shots.images is not None
        entering = self.frozen(shots.images)
        x, labels = torch.cat([self.kept, entering]), torch.cat([self.kept_labels, shots.labels])
        before = torch.sigmoid(self._logits(self.block.run(x)))
        means = class_means(functional.normalize(self.block.run(entering)), shots.labels, len(self.rows))
        self.rows = torch.cat([self.rows, functional.normalize(means - self.common)])
        self.bias = torch.cat([self.bias, torch.full((len(means),), -SCALE / 2)])
        targets = functional.one_hot(labels, len(self.rows)).float()
        targets[:, : before.shape[1]] = before

        def loss(chosen: Tensor) -> Tensor:
            return sigmoid_loss(self._logits(self.block(x[chosen])), targets[chosen])

        learnt = [*self.block.parameters(), self.rows, self.bias]
        fine_tune(learnt, loss, len(x), steps=self.steps, batch=self.batch, lr=self.lr, generator=self.generator)
        self._keep(shots, functional.normalize(self.block.run(entering)), self.each)

    def embed(self, queries: Queries) -> Tensor:
        """Run what is asked through the block as it is now."""
        assert queries.images is not None
        return self.block.run(self.frozen(queries.images))

    def _logits(self, activations: Tensor) -> Tensor:
        return SCALE * functional.normalize(activations) @ self.rows.T + self.bias

    def _keep(self, samples: Samples, unit: Tensor, most: int) -> None:
        """Herd exemplars of each class, and take the classes' vectors anew from all exemplars."""
        assert samples.images is not None
        chosen = []
        for label in range(int(samples.labels.min()), int(samples.labels.max()) + 1):
            rows = (samples.labels == label).nonzero()[:, 0]
            chosen.append(rows[herd(unit[rows], most)])
        index = torch.cat(chosen)
        self.kept = torch.cat([self.kept, self.frozen(samples.images.subset(index))])
        self.kept_labels = torch.cat([self.kept_labels, samples.labels[index]])
        self.vectors = class_means(functional.normalize(self.block.run(self.kept)), self.kept_labels)


def sigmoid_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Give Σ_j BCE(σ(logit_j), target_j), the mean over rows; targets [n k] lie in [0, 1]."""
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()

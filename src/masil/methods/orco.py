"""OrCo: orthogonal targets are given out class by class; contrast keeps room around free ones (Ahmed et al. 2024)."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import class_means, drawn_linear
from masil.methods.descent import Descends
from masil.methods.method import Keeps, NearestVector, Published, Queries, Samples, Task, state
from masil.protocol import first_of_each
from masil.training import contrast

TEMPERATURE = 0.07  # of the contrast
BATCH, SESSION_BATCH = 256, 64


@final
@dataclass(kw_only=True)
class OrCo(Descends, NearestVector):
    """Draw a projector to targets spread over the sphere, one for each class to come; free targets repel.

    A base session trains the projector by contrast within the batch and with perturbed free targets, by orthogonality,
    and by cross-entropy to the targets. A session starts from that projector again, gives free targets to the new
    classes that lie nearest, and trains on all shots so far beside five images of every base class.
    """

    name = "orco"
    title = "OrCo"
    citation = (
        "Ahmed et al., OrCo: Towards Better Generalization via Orthogonality and Contrast for Few-Shot "
        "Class-Incremental Learning, CVPR 2024"
    )
    differs = (
        "The original trains its backbone by contrast first and sees two views of every image; here the shared "
        "backbone's activations are projected, one view of each. Of its sessions the last step counts, not the best."
    )
    trains = "head"
    keeps = Keeps.EXEMPLARS | Keeps.WEIGHTS
    needs_total = True
    published: ClassVar[Published] = {
        "cifar100": {"jitter": 9e-5},
        "cub200": {"features": 256, "epochs": 100, "base_weight": 0.6},
    }
    tried = {"session_lr": (0.1, 0.03, 0.01)}  # noqa: RUF012

    features: int = 128  # of the targets
    hidden: int = 2048
    epochs: int = 10
    lr: float = 0.1
    session_epochs: int = 100
    session_lr: float | None = None  # the authors' is .1, on CUB-200 .05
    jitter: float = 0.01  # ε of perturbed targets
    base_weight: float = 0.0  # of the cross-entropy of base images in a session; novel ones have ½
    exemplars: int = 5  # images of a base class
    scale: float = state()  # activations are divided by it
    start: nn.Sequential = state()  # the projector after the base session
    projector: nn.Sequential = state()
    targets: Tensor = state()  # [K d'], those given out first and in the order of classes
    memory: Samples = state()  # images of base classes and all shots
    base: int = state()  # classes

    def fit(self, base: Samples, task: Task) -> None:
        """Spread the targets, give them to the base classes, and train the projector."""
        self.choose(base, task)
        d, self.base = base.activations.shape[1], int(base.labels.max()) + 1
        self.scale = float(base.activations.norm(dim=1).mean().clamp_min(1e-12))
        self.projector = nn.Sequential(
            drawn_linear(d, self.hidden, True, self.generator),
            nn.ReLU(),
            drawn_linear(self.hidden, self.features, True, self.generator),
        ).requires_grad_(False)
        self.targets = spread_targets(task.protocol.classes, self.features, self.generator)
        self._give_targets(base, 0)

        def loss(rows: Tensor) -> Tensor:
            z, labels = self._embed(base.activations[rows]), base.labels[rows]
            return self._alignment(z, labels) + functional.cross_entropy(z @ self.targets.T, labels)

        steps = self.epochs * -(-len(base) // BATCH)
        parameters = list(self.projector.parameters())
        self.descend(parameters, loss, base.labels, steps=steps, batch=BATCH, rate=self.lr)
        self.start = copy.deepcopy(self.projector)
        few = first_of_each(base.labels, self.exemplars)
        self.memory = Samples(base.activations[few], labels=base.labels[few])

    def learn(self, shots: Samples) -> None:
        """Give free targets to the new classes, and train the projector of the base session anew for all."""
        self.projector = copy.deepcopy(self.start)
        self._give_targets(shots, len(self.vectors))
        activations = torch.cat([self.memory.activations, shots.activations])
        labels = torch.cat([self.memory.labels, shots.labels])
        self.memory = Samples(activations, labels=labels)

        def loss(rows: Tensor) -> Tensor:
            z, y = self._embed(activations[rows]), labels[rows]
            weight = torch.where(y < self.base, self.base_weight, 0.5)
            errors = functional.cross_entropy(z @ self.targets.T, y, reduction="none")
            return self._alignment(z, y) + (weight * errors).mean()

        steps = self.session_epochs * -(-len(labels) // SESSION_BATCH)
        parameters = list(self.projector.parameters())
        self.descend(parameters, loss, labels, steps=steps, batch=SESSION_BATCH, rate=self.value("session_lr"))

    def embed(self, queries: Queries) -> Tensor:
        """Give projected activations, which are compared with the targets."""
        return self._embed(queries.activations)

    def _embed(self, activations: Tensor) -> Tensor:
        return functional.normalize(self.projector(activations.float() / self.scale))

    def _give_targets(self, samples: Samples, known: int) -> None:
        """Give the classes of a session the free targets that lie nearest to their means, one each."""
        means = functional.normalize(class_means(self._embed(samples.activations), samples.labels, known))
        given = matched(means @ self.targets[known:].T) + known
        others = torch.ones(len(self.targets), dtype=torch.bool).index_fill(0, given, False)
        others[:known] = False
        self.targets = torch.cat([self.targets[:known], self.targets[given], self.targets[others]])
        self.vectors = self.targets[: known + len(means)]

    def _alignment(self, z: Tensor, labels: Tensor) -> Tensor:
        """Give contrast among a batch and two perturbed copies of every free target, and orthogonality of its means."""
        free = self.targets[len(self.vectors) :].repeat(2, 1)
        noise = self.jitter * (torch.rand(free.shape, generator=self.generator) - 0.5)
        names = torch.cat([labels, torch.arange(len(self.vectors), len(self.targets)).repeat(2)])
        rows = torch.cat([z, functional.normalize(free + noise)])
        pulled = contrast(rows, functional.one_hot(names, len(self.targets)).float(), TEMPERATURE)
        present, place = torch.unique(labels, return_inverse=True)
        means = functional.normalize(torch.zeros(len(present), z.shape[1]).index_add(0, place, z))
        absent = torch.ones(len(self.targets), dtype=torch.bool).index_fill(0, present, False)
        return pulled + crowding(torch.cat([means, self.targets[absent]]))


def crowding(z: Tensor) -> Tensor:
    """Give mean_i log Σ_j e^{cos(z_i, z_j)} of unit rows, the least where they are as far apart as can be."""
    return torch.logsumexp(z @ z.T, 1).mean()


def spread_targets(count: int, features: int, generator: torch.Generator, steps: int = 1000) -> Tensor:
    """Spread unit vectors [count features] over the sphere by gradient descent at rate 1."""
    drawn = torch.randn(count, features, generator=generator)
    targets = drawn.requires_grad_()
    optimiser = torch.optim.SGD([targets], 1.0)
    for _ in range(steps):
        optimiser.zero_grad()
        crowding(functional.normalize(targets)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return functional.normalize(targets.detach())


def matched(cosines: Tensor) -> Tensor:
    """Give for each row the column that is its own, so that the sum of cosines is the largest there is."""
    _, columns = linear_sum_assignment(cosines.numpy(), maximize=True)
    return torch.from_numpy(columns)

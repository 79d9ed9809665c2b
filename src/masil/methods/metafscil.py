"""Our reading of MetaFSCIL: learn a start from which a few steps on the shots do not forget (Chi et al. 2022).

Sequences of fake sessions are drawn from the base classes. An inner loop learns each session from its shots alone; an
outer loop asks about all classes met so far and improves where the inner loop starts, and a gate on the features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from masil.collapse import class_means, cosine_cross_entropy
from masil.methods.episodes import Episode, EpisodeSampler
from masil.methods.method import Keeps, NearestVector, Queries, Samples, Task, state
from masil.methods.network import BlockMethod

BASE_SHOTS = 20  # images that a class of a sequence's first session is known by
Weights = dict[str, Tensor]  # of the last block


@final
class Gate(nn.Module):
    """f ∘ 2σ(MLP(f)): multiplies every feature by a number between 0 and 2, at first by 1."""

    def __init__(self, d: int, generator: torch.Generator) -> None:
        super().__init__()
        hidden = max(1, d // 4)
        self.inner = nn.Parameter(torch.randn(hidden, d, generator=generator) / d**0.5)
        self.outer = nn.Parameter(torch.zeros(d, hidden))

    def forward(self, f: Tensor) -> Tensor:
        """Gate features [n d], which set the gate at unit length."""
        opened = torch.relu(functional.normalize(f) @ self.inner.T) @ self.outer.T
        return 2 * torch.sigmoid(opened) * f


@final
@dataclass(kw_only=True)
class MetaFscil(BlockMethod, NearestVector):
    """Learn a session by a few steps on its shots, from a start and with a gate that were learnt for that.

    The gate changes in the outer loop alone. No image is kept.
    """

    name = "metafscil"
    title = "our reading of MetaFSCIL"
    citation = "Chi et al., MetaFSCIL: A Meta-Learning Approach for Few-Shot Class Incremental Learning, CVPR 2022"
    differs = (
        "There is no code of the authors. The last block is learnt, not the whole network; the gate is a layer on the "
        "pooled features, not a second network; gradients are of first order, in 30 sequences. New rows begin at means."
    )
    counts = ("asked",)
    keeps = Keeps.WEIGHTS

    sequences: int = 30
    asked: int = 5  # images of each class in the outer loop
    warmup: int = 20
    warmup_lr: float = 0.1
    steps: int = 5
    lr: float = 1e-3  # of the inner loop
    outer_lr: float = 1e-3
    gate: Gate = state()

    def fit(self, base: Samples, task: Task) -> None:
        """Learn where sessions start, then take the means of the base classes."""
        self.take_network(base, task)
        self.gate = Gate(base.activations.shape[1], self.generator).requires_grad_(False)
        x = self.entering(base)
        sampler = EpisodeSampler(base.labels, self.generator)
        learnt = [*self.block.parameters(), *self.gate.parameters()]
        optimiser = torch.optim.SGD(learnt, self.outer_lr, momentum=0.9)
        for _ in range(self.sequences):
            optimiser.zero_grad()
            self._play(x, list(fake_sessions(sampler, task.protocol.way, task.protocol.shot, self.asked)))
            optimiser.step()
        self.vectors = class_means(functional.normalize(self._embed(x)), base.labels)

    def learn(self, shots: Samples) -> None:
        """Run the inner loop on the shots."""
        x, labels, old = self.entering(shots), shots.labels, self.vectors
        rows = torch.cat([old, class_means(functional.normalize(self._embed(x)), labels, len(old))])

        def train(rate: float) -> None:
            weights, learnt = self.adapt(self._weights(), old, labels, x, rate)
            self.block.load_state_dict(weights, strict=False)
            rows.copy_(learnt)

        def loss() -> Tensor:
            return cosine_cross_entropy(self._embed(x), rows, labels)

        self.steadily([*self.block.parameters(), rows], train, loss, self.lr)
        self.vectors = rows

    def adapt(self, weights: Weights, rows: Tensor, labels: Tensor, x: Tensor, lr: float) -> tuple[Weights, Tensor]:
        """Learn classes that come after those of `rows`: new rows alone at first, then the block and all rows.

        Nothing that is given is changed, and the gate stays as it is.
        """
        with torch.no_grad():
            f = self.features(weights, x)
        new = class_means(functional.normalize(f), labels, len(rows))
        for _ in range(self.warmup):
            new.requires_grad_()
            (slope,) = torch.autograd.grad(cosine_cross_entropy(f, torch.cat([rows, new]), labels), [new])
            new = (new - self.warmup_lr * slope).detach()
        rows = torch.cat([rows, new])
        for _ in range(self.steps):
            learnt = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
            rows.requires_grad_()
            loss = cosine_cross_entropy(self.features(learnt, x), rows, labels)
            *slopes, slope = torch.autograd.grad(loss, [*learnt.values(), rows])
            weights = {name: (learnt[name] - lr * own).detach() for name, own in zip(learnt, slopes, strict=True)}
            rows = (rows - lr * slope).detach()
        return weights, rows

    def features(self, weights: Weights, x: Tensor) -> Tensor:
        """Run the last block with these weights, and the gate."""
        gated: Tensor = self.gate(functional_call(self.block, weights, (x,)))
        return gated

    @torch.no_grad()
    def embed(self, queries: Queries) -> Tensor:
        """Give gated features."""
        gated: Tensor = self.gate(self.features_now(queries))
        return gated

    def _weights(self) -> Weights:
        return {name: weight.detach() for name, weight in self.block.named_parameters()}

    @torch.no_grad()
    def _embed(self, x: Tensor) -> Tensor:
        gated: Tensor = self.gate(self.block.run(x))
        return gated

    def _play(self, x: Tensor, sessions: list[Episode]) -> None:
        """Play a sequence of fake sessions, and add up the slopes of what they ask, as gradients of block and gate."""
        weights, first = self._weights(), sessions[0]
        with torch.no_grad():
            rows = class_means(functional.normalize(self.features(weights, x[first.shots])), first.shot_places)
        for number, session in enumerate(sessions[1:], start=2):
            weights, rows = self.adapt(weights, rows, session.shot_places + len(rows), x[session.shots], self.lr)
            asked, truth = all_questions(sessions[:number])
            learnt = {name: weight.requires_grad_() for name, weight in weights.items()}
            self.gate.requires_grad_(True)
            loss = cosine_cross_entropy(self.features(learnt, x[asked]), rows, truth)
            parameters = [*self.block.parameters(), *self.gate.parameters()]
            slopes = torch.autograd.grad(loss, [*learnt.values(), *self.gate.parameters()])
            for parameter, slope in zip(parameters, slopes, strict=True):
                parameter.grad = slope if parameter.grad is None else parameter.grad + slope
            self.gate.requires_grad_(False)
            weights = {name: weight.detach() for name, weight in learnt.items()}


def fake_sessions(sampler: EpisodeSampler, way: int, shots: int, asked: int) -> Iterator[Episode]:
    """Draw a sequence: a third of the classes as its base session, then sessions of `way`; no class comes twice."""
    order = sampler.choose(len(sampler.positions))
    first = max(1, len(order) // 3)
    way = max(1, min(way, len(order) - first))
    yield sampler.draw(order[:first], BASE_SHOTS, asked)
    for start in range(first, len(order) - way + 1, way):
        yield sampler.draw(order[start : start + way], shots, asked)


def all_questions(sessions: list[Episode]) -> tuple[Tensor, Tensor]:
    """Give the images that all these sessions ask about, and their classes counted from the first session on."""
    known, truth = 0, []
    for session in sessions:
        truth.append(session.query_places + known)
        known += len(session.classes)
    return torch.cat([session.queries for session in sessions]), torch.cat(truth)

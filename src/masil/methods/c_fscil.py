"""C-FSCIL: a linear layer learnt in episodes makes class vectors nearly orthogonal, and is realigned in every session.

Hersche et al. (2022). One mean activation is kept for each class. Mode 1 runs it through the layer; mode 2 aligns the
layer with bipolar versions of the class vectors; mode 3 nudges the vectors apart and aligns the layer with these.
"""

import copy
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import class_means, drawn_linear
from masil.errors import InputError
from masil.methods.descent import Descends, take_step
from masil.methods.episodes import EpisodeSampler
from masil.methods.method import Geometry, Keeps, LargestScore, Queries, Samples, Task, state

FEATURES = 512  # of a class vector
SHARPNESS = 10.0  # of the soft absolute value
SHOTS, ASKED = 5, 10  # images of each class in an episode
ALIGNING = {1: 0, 2: 10, 3: 50}  # mode -> steps of the layer in a session
NUDGES, NUDGE_RATE, STRENGTH = 100, 0.1, 4.0


@final
@dataclass(kw_only=True)
class CFscil(Descends, LargestScore):
    """Compare tanh of the layer's outputs by the absolute cosine; a session realigns the layer with all classes."""

    name = "c-fscil"
    title = "C-FSCIL (head only)"
    citation = "Hersche et al., Constrained Few-shot Class-incremental Learning, CVPR 2022"
    differs = (
        "The original meta-learns its backbone with the layer, in 70,000 episodes; here the backbone is shared. Class "
        "vectors that do not exist yet take no part in the loss, so the number of classes need not be known."
    )
    trains = "head"
    keeps = Keeps.MEANS | Keeps.WEIGHTS

    mode: int = 3
    episodes: int = 300
    lr: float = 0.01
    # The authors' code sums the means of batches, so that a base class's mean is 94 (CIFAR-100) or 47 (miniImageNet)
    # times too long and its vector is bipolar after tanh.
    base_gain: float = 1.0
    layer: nn.Linear = state()
    optimiser: torch.optim.SGD = state()  # one for all sessions
    scale: float = state()  # activations are divided by it
    means: Tensor = state()  # ā [k d]
    vectors: Tensor = state()  # p [k 512]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in ALIGNING:
            raise InputError(f"C-FSCIL has the modes 1, 2 and 3; there is no mode {self.mode}.")

    def fit(self, base: Samples, task: Task) -> None:
        """Meta-learn the layer in episodes of all base classes, then take in their means."""
        self.choose(base, task)
        generator = self.generator
        d = base.activations.shape[1]
        self.scale = float(base.activations.norm(dim=1).mean().clamp_min(1e-12)) / d**0.5
        self.layer = drawn_linear(d, FEATURES, True, generator)
        x = self._scaled(base.activations)
        sampler = EpisodeSampler(base.labels, generator)
        optimiser = self._optimiser()
        rate = torch.optim.lr_scheduler.MultiStepLR(optimiser, [3 * self.episodes // 7, 6 * self.episodes // 7])
        for _ in range(self.episodes):
            episode = sampler.draw(sampler.choose(len(sampler.positions)), SHOTS, ASKED)
            with torch.no_grad():
                written = class_means(self.layer(x[episode.shots]), episode.shot_places) * SHOTS
            take_step(optimiser, memory_loss(self.layer(x[episode.queries]), written, episode.query_places), rate)
        self.optimiser = self._optimiser()
        self.means = torch.empty(0, d)
        self._take_in(self.base_gain * class_means(x, base.labels))

    def learn(self, shots: Samples) -> None:
        """Append the means of the new classes and realign the layer with all."""
        self._take_in(class_means(self._scaled(shots.activations), shots.labels, len(self.means)))

    def geometry(self, queries: Queries) -> Geometry:
        """Compare tanh of both."""
        with torch.no_grad():
            z = self.layer(self._scaled(queries.activations))
        return _direction(z), _direction(self.vectors)

    def scores(self, queries: Queries) -> Tensor:
        """Give how far the cosine to each class is from 0."""
        z, vectors = self.geometry(queries)
        return (z @ vectors.T).abs()

    def _take_in(self, means: Tensor) -> None:
        """Append means, align the layer as the mode says, and work all class vectors out anew."""
        self.means = torch.cat([self.means, means])
        self.layer.requires_grad_(True)
        with torch.no_grad():
            start = self.layer(self.means)
        targets = nudged(start) if self.mode == 3 else start.sign()
        before = copy.deepcopy(self.optimiser.state_dict())  # one for all sessions: it goes on where it was

        def loss() -> Tensor:
            return 1 - functional.cosine_similarity(self.layer(self.means).tanh(), targets.tanh()).mean()

        def train(rate: float) -> None:
            self.optimiser.load_state_dict(copy.deepcopy(before))
            self.optimiser.param_groups[0]["lr"] = rate
            for _ in range(ALIGNING[self.mode]):
                take_step(self.optimiser, loss())

        self.steadily([*self.layer.parameters()], train, loss, self.lr)
        self.layer.requires_grad_(False)
        self.vectors = self.layer(self.means)

    def _optimiser(self) -> torch.optim.SGD:
        return torch.optim.SGD(self.layer.parameters(), self.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def _scaled(self, activations: Tensor) -> Tensor:
        return activations.float() / self.scale


def soft_absolute(cosines: Tensor) -> Tensor:
    """Give h(α) = σ(10 (α − ½)) + σ(10 (−α − ½)), which is near 0 around 0 and near 1 at −1 and 1."""
    return torch.sigmoid(SHARPNESS * (cosines - 0.5)) + torch.sigmoid(SHARPNESS * (-cosines - 0.5))


def memory_loss(queries: Tensor, written: Tensor, labels: Tensor) -> Tensor:
    """Give the mean binary cross-entropy of ε_i = h(α_i)/Σ_j h(α_j) to the labels, α the cosines after tanh."""
    attention = soft_absolute(_direction(queries) @ _direction(written).T)
    shares = attention / attention.sum(1, keepdim=True)
    return functional.binary_cross_entropy(shares, functional.one_hot(labels, len(written)).to(shares))


def nudged(vectors: Tensor) -> Tensor:
    """Move class vectors [k 512] apart: 100 steps on their mutual cosines, held by what they were.

    The loss is the mean of e^{4s} + e^{−4s} − 2 over pairs, s their cosine after tanh, and 1 − cos(tanh p, tanh p⁰).
    """
    p = vectors.clone().requires_grad_()
    optimiser = torch.optim.SGD([p], NUDGE_RATE, momentum=0.9, nesterov=True)
    start, pairs = _direction(vectors), torch.triu_indices(len(p), len(p), 1)
    for _ in range(NUDGES):
        unit = _direction(p)
        cosines = (unit @ unit.T)[pairs[0], pairs[1]]
        apart = (torch.exp(STRENGTH * cosines) + torch.exp(-STRENGTH * cosines) - 2).sum() / max(1, len(cosines))
        take_step(optimiser, apart + (1 - (unit * start).sum(1)).mean())
    return p.detach()


def _direction(rows: Tensor) -> Tensor:
    return functional.normalize(rows.tanh())

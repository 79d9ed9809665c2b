"""NC-FSCIL and its variants: a projection onto class vectors, fine-tuned in every session on shots and class means.

NC-FSCIL (Yang et al., ICLR 2023) fixes the class vectors in advance, as a simplex over all classes to come. All that a
session sees is activations of its shots and one mean of every earlier class. The variants differ in two things, the
loss and whether the class vectors are that frame or are learnt; they are the first three rows of MASIL's ablation.
"""

import copy
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from masil.collapse import Projection, class_means, cosine_cross_entropy, dot_regression, simplex_etf
from masil.methods.descent import Descends, take_step
from masil.methods.method import Geometry, Keeps, NearestVector, Published, Queries, Samples, Task, state
from masil.protocol import Protocol
from masil.training import FrameLoss, Recipe, balanced_batches, shuffled_batches

FEATURES = 512  # of the embeddings, if that is room enough for the frame
PROBED = 512  # rows in each of four batches by which a descent is judged
HIDDEN = 1024  # the original's width for a ResNet-18; wider backbones get no more
MASIL = "Khandelwal, MASIL: Maximum Separable Class Representation for Few Shot Class Incremental Learning, 2023"


@dataclass(kw_only=True)
class FineTuned(Descends, NearestVector):
    """Train g and, where they are not a frame, the class vectors; the rates are NC-FSCIL's.

    Its base rate is that of CIFAR-100 and miniImageNet, where it trains from a random start, as g does here. In session
    i each mean of an earlier novel class is replayed i times, or once if not `repeat`. `mixed` and `even` are what it
    does on CIFAR-100 alone.
    """

    trains = "head"
    head_only = True
    keeps = Keeps.MEANS | Keeps.WEIGHTS
    published: ClassVar[Published] = {
        "cifar100": {
            "repeat": False,
            "session_steps": (50, 75, 100, 120, 140, 160, 200, 200),
            "mixed": 0.75,
            "even": True,
        },
        "miniimagenet": {"session_steps": tuple(range(100, 171, 10))},
        "cub200": {"session_steps": tuple(range(105, 151, 5))},
    }
    term: ClassVar[str]  # of `FrameLoss`
    framed: ClassVar[bool]
    tried = {"session_lr": (0.05, 0.25, 0.025, 0.005)}  # noqa: RUF012

    steps: int = 300
    lr: float = 0.25
    session_steps: int | tuple[int, ...] = 100  # of every session, or of each; the last holds for all that follow
    session_lr: float | None = None  # the authors' is .25 on CIFAR-100, .025 on miniImageNet and .05 on CUB-200
    repeat: bool = True
    mixed: float = 0.0  # share of a session's batches whose embeddings are averaged with others of the batch
    even: bool = False  # weigh classes in a session's batch alike, whatever their number of rows
    g: Projection = state()
    scale: float = state()  # activations are divided by it
    memory: Tensor = state()  # [k d], one mean of activations for each class
    base: int = state()  # base classes
    sessions: int = state()  # since the base session

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Train the projection through the whole network, as the authors do."""
        room = max(FEATURES, protocol.classes)
        scale = 10.0 if self.term == "dot-regression" else 16.0
        shape, reserve = ("simplex", protocol.classes) if self.framed else (None, None)
        loss = FrameLoss(frame_shape=shape, term=self.term, scale=scale, reserve=reserve, embedding=room)
        return usual.trained_by(self.name, loss)

    def fit(self, base: Samples, task: Task) -> None:
        """Train from a random start, batches of 512, the rate falling to 1 % along a cosine."""
        self.choose(base, task)
        self._start(base, task.protocol.classes)
        if task.own and task.trained is not None and task.trained.projection is not None:
            self.g, self.scale = copy.deepcopy(task.trained.projection), 1.0
            self.vectors = task.trained.class_vectors if task.trained.frame is None else task.trained.frame
        else:
            self._train(base.activations, base.labels, self.steps, self.lr, base=True)

    def learn(self, shots: Samples) -> None:
        """Fine-tune on the shots and the means of every earlier class, batches of 64."""
        known = len(self.memory)
        means = class_means(shots.activations, shots.labels, known)
        if not self.framed:
            self.vectors = torch.cat([self.vectors, self._embed(means)])
        self.sessions += 1
        times = self.sessions if self.repeat else 1
        replayed = torch.cat([torch.arange(self.base), torch.arange(self.base, known).repeat(times)])
        rows, labels = torch.cat([self.memory[replayed], shots.activations]), torch.cat([replayed, shots.labels])
        plan = (self.session_steps,) if isinstance(self.session_steps, int) else self.session_steps
        self._train(rows, labels, plan[min(self.sessions, len(plan)) - 1], self.value("session_lr"))
        self.memory = torch.cat([self.memory, means])

    def embed(self, queries: Queries) -> Tensor:
        """Give embeddings."""
        return self._embed(queries.activations)

    def geometry(self, queries: Queries) -> Geometry:
        """Compare with the vectors of the classes taught so far."""
        return self.embed(queries), functional.normalize(self.vectors[: len(self.memory)])

    @torch.no_grad()
    def _embed(self, activations: Tensor) -> Tensor:
        return functional.normalize(self.g(activations / self.scale))

    def _start(self, base: Samples, total: int) -> None:
        """Draw projection and class vectors, and remember the base classes' means."""
        d = base.activations.shape[1]
        self.scale = float(base.activations.norm(dim=1).mean().clamp_min(1e-12))
        self.base, self.sessions = base.classes, 0
        room = total if self.framed else self.base
        features = max(FEATURES, room)
        self.g = Projection(d, features, hidden=[min(2 * d, HIDDEN)] * 2, generator=self.generator)
        self.vectors = (
            simplex_etf(room, features, self.generator)
            if self.framed
            else functional.normalize(torch.randn(room, features, generator=self.generator))
        )
        self.memory = class_means(base.activations, base.labels)

    def _train(self, rows: Tensor, labels: Tensor, steps: int, lr: float, *, base: bool = False) -> None:
        vectors = self.vectors if self.framed else nn.Parameter(self.vectors)
        learnt = [*self.g.parameters(), *([] if self.framed else [vectors])]
        seen = len(self.vectors) if base else int(labels.max()) + 1
        # Judged on as many rows of every class: features that collapse onto the new classes please their many rows.
        few = torch.cat(list(balanced_batches(labels, PROBED, 4, torch.Generator().manual_seed(0))))

        def loss(chosen: Tensor, mixing: bool = False) -> Tensor:
            z, y = self.g(rows[chosen] / self.scale), labels[chosen]
            if self.term == "cross-entropy":
                return cosine_cross_entropy(z, vectors[:seen], y)
            return self._session_loss(z, vectors, y) if mixing else dot_regression(z, vectors[y])

        def train(lr: float) -> None:
            for tensor in learnt:
                tensor.requires_grad_(True)
            optimiser = torch.optim.SGD(learnt, lr, momentum=0.9, weight_decay=5e-4)
            warmup, batch = (0.05, 512) if base else (0.0, 64)
            rate = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step / steps, warmup))
            for chosen in shuffled_batches(len(rows), batch, steps, self.generator):
                take_step(optimiser, loss(chosen, mixing=not base), rate)
            for tensor in learnt:
                tensor.requires_grad_(False)

        self.steadily(learnt, train, lambda: loss(few), lr)
        if not self.framed:
            self.vectors = functional.normalize(vectors.detach())

    def _session_loss(self, z: Tensor, vectors: Tensor, labels: Tensor) -> Tensor:
        """Give dot-regression to targets of length √(γ/n_y), n_y rows of the class in the batch, γ their mean.

        Where embeddings are mixed, the whole batch is averaged with a permutation of itself, and both labels count.
        """
        counts = torch.bincount(labels)
        length = ((counts > 0).sum().reciprocal() * len(labels) / counts[labels]).sqrt() if self.even else None
        terms = [(labels, length)]
        if float(torch.rand((), generator=self.generator)) < self.mixed:
            order = torch.randperm(len(labels), generator=self.generator)
            z = (z + z[order]) / 2
            terms.append((labels[order], None if length is None else length[order]))
        return torch.stack([_to_targets(z, vectors[target], lengths) for target, lengths in terms]).mean()


@final
@dataclass(kw_only=True)
class NcFscil(FineTuned):
    """Class vectors are fixed as a simplex over all classes to come, and dot-regression draws embeddings to them."""

    name = "nc-fscil"
    title = "NC-FSCIL"
    citation = (
        "Yang et al., Neural Collapse Inspired Feature-Classifier Alignment for Few-Shot Class-Incremental "
        "Learning, ICLR 2023"
    )
    differs = "The original trains its backbone with this loss; on a shared backbone the projection alone is trained."
    needs_total = True
    term = "dot-regression"
    framed = True


@final
@dataclass(kw_only=True)
class NcCe(FineTuned):
    """A fixed frame under cross-entropy, which also pushes embeddings from the other classes' vectors."""

    name = "nc-ce"
    title = "NC + CE"
    citation = MASIL
    differs = (
        "The paper names loss and frame of this row of its ablation and leaves the rest open: here cosines at scale "
        "16, and sessions as those of NC-FSCIL. On a shared backbone the projection alone is trained."
    )
    needs_total = True
    term = "cross-entropy"
    framed = True


@final
@dataclass(kw_only=True)
class LearnableCe(FineTuned):
    """No frame: class vectors are learnt, new ones start at the embeddings of their class means."""

    name = "learnable-ce"
    title = "Learnable + CE"
    citation = MASIL
    differs = (
        "The paper names the loss of this row of its ablation and leaves the rest open: here cosines at scale 16, new "
        "vectors that begin at class means, and sessions as those of NC-FSCIL. On a shared backbone projection and "
        "vectors alone are trained."
    )
    term = "cross-entropy"
    framed = False


def _to_targets(z: Tensor, vectors: Tensor, lengths: Tensor | None) -> Tensor:
    """Give 5 · mean (⟨ẑ, ℓ m_y⟩ − ℓ)², the dot-regression to targets of length ℓ: the errors are weighed by ℓ²."""
    errors = ((functional.normalize(z) * vectors).sum(1) - 1).square()
    return 5 * (errors if lengths is None else lengths.square() * errors).mean()


def _rate(done: float, warmup: float) -> float:
    """Rise from 0 to 1 in the first `warmup` of the steps, then fall to .01 along a cosine."""
    if done < warmup:
        return done / warmup
    through = torch.tensor((done - warmup) / (1 - warmup) * torch.pi)
    return 0.01 + 0.99 * 0.5 * (1 + float(torch.cos(through)))

"""MASIL as the paper writes it (Khandelwal 2023), and the row of its ablation that leaves fine-tuning out.

The base session trains ResNet-18 and a two-layer classifier by dot-regression onto a simplex, through the whole
network; NC-FSCIL's is the same, so the two share it. Concepts are the factors of activations of ten random crops of
each base image. A session solves NNLS for its shots, takes the mean coefficients of each class through concepts and
classifier to the class vector ŵ (Eq. inf, hi, weights), and fine-tunes all class vectors (Eq. final_loss).

One thing cannot be as written: concepts are factors of activations >= 0 and a simplex has negative coordinates, so ŵ is
g(P̄ Q) and not P̄ Q, g the classifier's first layer. What the paper leaves open (α, cycles of the warm restarts) has one
value for all data sets and is not tuned.
"""

import copy
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.backbones import ActivationStore
from masil.collapse import Projection, balanced_factors, class_means
from masil.concepts import ConceptBank
from masil.errors import InputError, MasilError
from masil.methods.descent import take_step
from masil.methods.method import Geometry, Keeps, LargestScore, Published, Queries, Samples, Task, state
from masil.methods.nc_fscil import MASIL, NcFscil
from masil.protocol import Protocol, first_of_each
from masil.training import Recipe, Schedule, shuffled_batches

SGDR = Schedule(shape="cosine", warmup=0.0, cycles=3)  # each cycle twice as long as the one before
BANK: Published = {"cub200": {"concepts": 72, "side": 64}}
# The appendix gives iterations as a range: miniImageNet's 120 to 190 are its eight sessions, ten more for each.
TUNING: Published = {
    "cifar100": {"iterations": (20, 80), "lr": 0.25},
    "miniimagenet": {"iterations": (120, 190), "lr": 0.025},
    "cub200": {"iterations": (80, 150), "lr": 0.05},
}


@final
@dataclass(frozen=True)
class TuningData:
    """What a session's fine-tuning sees; classes are 0 … k − 1, the session's own last."""

    embeddings: Tensor  # h [n d], of the shots
    labels: Tensor  # [n]
    memory: Tensor  # M [k d], the mean embedding of every class seen
    induced: Tensor  # ŵ [k d]


@dataclass(kw_only=True)
class _Induced(LargestScore):
    """Class vectors: the simplex for base classes, concepts of the shots for novel ones.

    `images` are how many of each base class the bank takes its crops from, all where it is None.
    """

    citation = MASIL
    differs = (
        "Class vectors are induced behind the classifier's first layer, since concepts are non-negative and a simplex "
        "is not. What the paper leaves open (α = ½, cycles of the warm restarts) is not tuned."
    )
    sees = "images"
    keeps = Keeps.MEANS | Keeps.WEIGHTS

    concepts: int = 64
    crops: int = 10
    side: int = 18
    images: int | None = None
    bank: ConceptBank = state()
    g: Projection = state()
    vectors: Tensor = state()  # w [k d]
    induced: Tensor = state()  # ŵ [k d]
    memory: Tensor = state()  # M [k d], the mean embedding of each class (Eq. mem)
    base: int = state()  # classes
    session: int = state()
    sessions: int = state()  # that will come
    generator: torch.Generator = state()

    def base_session(self, usual: Recipe, protocol: Protocol) -> Recipe:
        """Share NC-FSCIL's: dot-regression onto a simplex of all classes to come."""
        return NcFscil().base_session(usual, protocol)

    def fit(self, base: Samples, task: Task) -> None:
        """Take the simplex and the classifier's first layer from the base session; factorise crops into concepts."""
        self.check_task(task)
        trained = task.trained
        assert trained is not None
        assert trained.projection is not None
        self.g = copy.deepcopy(trained.projection)
        self.base = len(trained.class_vectors)
        self.vectors = self.induced = trained.class_vectors.clone()
        self.memory = class_means(self._embed(base.activations), base.labels)
        self.session, self.sessions = 0, task.protocol.sessions
        self.generator = task.generator()
        self.bank = self._factorised(base, task)

    def learn(self, shots: Samples) -> None:
        """Induce the vectors of the new classes, ŵ = g(P̄ Q) (Eq. weights), then tune."""
        known = len(self.vectors)
        self.session += 1
        coefficients = class_means(self.bank.coefficients(shots.activations.float()), shots.labels, known)
        induced = self._embed(coefficients @ self.bank.concepts)
        z = self._embed(shots.activations)
        self.memory = torch.cat([self.memory, class_means(z, shots.labels, known)])
        self.induced = torch.cat([self.induced, induced])
        start = torch.cat([self.vectors, induced])
        self.vectors = self.tuned(start, TuningData(z, shots.labels, self.memory, self.induced))

    @abstractmethod
    def tuned(self, start: Tensor, data: TuningData) -> Tensor:
        """Give the class vectors after a session that begins with `start` [k d]."""

    def scores(self, queries: Queries) -> Tensor:
        """Give the products w·h."""
        return self._embed(queries.activations) @ self.vectors.T

    def geometry(self, queries: Queries) -> Geometry:
        """Give embeddings and class vectors, these at unit length."""
        return self._embed(queries.activations), functional.normalize(self.vectors)

    def remarks(self) -> dict[str, Any]:
        """Give the bank's cosines and origin, and how far fine-tuning has moved the class vectors from ŵ."""
        record = self.bank.record
        moved = (self.vectors - self.induced).norm(dim=1)
        return {
            "concept_cosine": {"plain": self.bank.mean_cosine(), "centred": self.bank.mean_cosine(centred=True)},
            "bank": {"concepts": self.bank.v, "crops": record.crops, "side": record.side, "rows": record.rows},
            "moved": {"base": float(moved[: self.base].mean()), "novel": float(moved[self.base :].mean())}
            if self.session
            else {},
        }

    def check_task(self, task: Task) -> None:
        """Refuse a base session of another objective, too."""
        super().check_task(task)
        if task.own:
            return
        trained = task.trained
        origin = "has no base session of its own"
        if trained is not None:
            loss = trained.recipe.loss
            origin = f"was trained by '{trained.recipe.name}', {loss.get('term', loss.get('name'))}"
            origin += f" onto {loss['frame_shape'] or 'learnt vectors'}" if "frame_shape" in loss else ""
        raise InputError(
            f"'{self.name}' needs a base session that dot-regression has drawn onto a simplex of all "
            f"{task.protocol.classes} classes, but this backbone {origin}. `masil bench` with --recipe trains one, and "
            "`masil reproduce` does all of it."
        )

    def _factorised(self, base: Samples, task: Task) -> ConceptBank:
        """Factorise activations of crops by ADMM (Eq. nmf, cb)."""
        images = (base if self.images is None else base.some(first_of_each(base.labels, self.images))).shown
        v = min(self.concepts, task.network.features, self.crops * len(images))
        return ConceptBank.from_images(
            images, task.network, v, crops=self.crops, side=self.side, seed=task.seed, store=ActivationStore(),
            device=task.device, solver="admm",
        )  # fmt: skip

    @torch.no_grad()
    def _embed(self, activations: Tensor) -> Tensor:
        return self.g(activations.float())


@final
@dataclass(kw_only=True)
class CfAsWritten(_Induced):
    """Concepts alone: the induced vectors stay as they are."""

    name = "cf-as-written"
    title = "NC + ETF loss + CF"
    published: ClassVar[Published] = BANK

    def tuned(self, start: Tensor, data: TuningData) -> Tensor:
        """Give the vectors as they were induced."""
        return start


@final
@dataclass(kw_only=True)
class MasilAsWritten(_Induced):
    """All of it: simplex, concepts, and fine-tuning of all class vectors after each session.

    `iterations` are those of the first and of the last session, and in between in between.
    """

    name = "masil-as-written"
    title = "MASIL (as the paper writes it)"
    trains = "head"
    published: ClassVar[Published] = {name: {**TUNING[name], **BANK.get(name, {})} for name in TUNING}

    alpha: float = 0.5
    iterations: tuple[int, int] = (20, 80)
    lr: float = 0.25
    batch: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"`alpha` is {self.alpha}, but the paper has it in [0, 1].")

    def tuned(self, start: Tensor, data: TuningData) -> Tensor:
        """Lower Eq. final_loss."""
        first, last = self.iterations
        share = (self.session - 1) / max(1, self.sessions - 1)
        return fine_tune_simplex(
            start, data, alpha=self.alpha, iterations=round(first + share * (last - first)), lr=self.lr,
            batch=self.batch, generator=self.generator,
        )  # fmt: skip


def final_loss(W: Tensor, data: TuningData, alpha: float, shots: Tensor, remembered: Tensor) -> Tensor:
    """Give Eq. final_loss of class vectors W [k d], its two means taken over rows of the shots and of the memory.

    With h_i the embeddings of a session's shots D, M_y the remembered mean of each of the k classes seen, and ŵ_y the
    simplex representation of a class (its vertex for a base class, Eq. weights for a novel one), it is

        (1/|D|) Σ_D (w_y·h_i − 1)² + (1/k) Σ_y (w_y·M_y − 1)² + α Σ_y ‖w_y − ŵ_y‖².

    It only attracts, so it falls apart into one quadratic problem per class; nothing keeps classes apart.
    """
    fit = ((W[data.labels[shots]] * data.embeddings[shots]).sum(1) - 1).square().mean()
    memory = ((W[remembered] * data.memory[remembered]).sum(1) - 1).square().mean()
    return fit + memory + alpha * (W - data.induced).square().sum()


def fine_tune_simplex(
    start: Tensor, data: TuningData, *, alpha: float, iterations: int, lr: float, batch: int, generator: torch.Generator
) -> Tensor:
    """Lower Eq. final_loss from the class vectors `start` [k d], both layers at once; give the class vectors.

    These are the rows of a product of two matrices. ŵ^{1/L}, which a signed vector does not have, is read as the
    balanced factorisation of all class vectors, what deep linear networks converge to. Every iteration sees at most
    `batch` shots and as many remembered classes. The rate has warm restarts, the momentum is .9.
    """
    layers = [factor.requires_grad_() for factor in balanced_factors(start)]
    optimiser = torch.optim.SGD(layers, lr, momentum=0.9)
    shots = shuffled_batches(len(data.labels), batch, iterations, generator)
    remembered = shuffled_batches(len(data.memory), batch, iterations, generator)
    for step, (some, classes) in enumerate(zip(shots, remembered, strict=True)):
        optimiser.param_groups[0]["lr"] = lr * SGDR.factor(step, iterations)
        take_step(optimiser, final_loss(layers[0] @ layers[1], data, alpha, shots=some, remembered=classes))
    tuned = (layers[0] @ layers[1]).detach()
    if not bool(tuned.isfinite().all()):
        raise MasilError(f"Simplex fine-tuning diverged at a rate of {lr} with alpha {alpha}; lower one of them.")
    return tuned

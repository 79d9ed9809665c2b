"""The learner as three functions on values: `fit_base` (the base session), `teach` (a session) and `score`.

Everything here sees a^p: whoever brings activations takes the power first (`take_power`), once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from masil.collapse import Embedding, class_means
from masil.concepts import ConceptBank
from masil.errors import InputError
from masil.learner import calibration
from masil.learner import vectors as solve
from masil.learner.calibration import SessionEmbeddings
from masil.learner.embeddings import Embeddings
from masil.learner.prior import Concepts, PriorWeight, fit_concepts, measure
from masil.learner.rows import ClassRows, Shots, running_mean, take_power, unit
from masil.learner.settings import Settings
from masil.learner.unknown import FOLDS, UnknownDetector, evidence, fit_detector, tightness
from masil.progress import bar
from masil.protocol import class_folds, hold_out


@final
@dataclass(frozen=True, eq=False)
class Base:
    """What the base session learnt and no later session changes. All of it works on a^p."""

    power: float
    embedding: Embedding  # g
    bank: ConceptBank
    prior: PriorWeight | None  # None: α was given as a number
    temperature: float
    framed: bool  # whether the base classes' vectors were given (a frame, or learnt ones) and are not their means
    unknown_detector: UnknownDetector | None = None  # None: too few images to learn from, or not asked for
    points: Mapping[str, float] | None = None  # aim -> strength of balance; None: nothing was aimed at

    @property
    def features(self) -> int:
        """How many activations an image has."""
        return self.embedding.features_in

    def take_power(self, activations: Tensor) -> Tensor:
        """Give a^p."""
        return take_power(activations, self.power)

    @torch.no_grad()
    def embed(self, activations: Tensor) -> Tensor:
        """Give embeddings of unit length [n d'] of plain activations [n d]; the power is taken here."""
        return self.embedding(self.take_power(activations))


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """How n images compare with k classes."""

    cosines: Tensor  # [n k]
    offsets: Tensor  # [k], subtracted so that classes of many and of few images compete fairly
    known: Tensor | None  # float64 [n], probability that the image is of a class that was taught

    @property
    def values(self) -> Tensor:
        """The scores [n k]: the class with the largest one is the answer."""
        return self.cosines - self.offsets


@torch.no_grad()
def fit_base(
    shots: Shots,
    settings: Settings,
    *,
    concepts: Concepts | None = None,
    class_vectors: Tensor | None = None,
    confidence: bool = True,
    points: Mapping[str, float] | None = None,
) -> tuple[Base, ClassRows]:
    """Learn the base session: g, the bank, the prior's weight and how scores compare; ŵ of a class is its mean.

    `concepts` are fitted unless given. `class_vectors` [k d'] are those a base session has trained g to, if it has.
    Without `confidence` there is neither a fitted temperature nor an unknown-detector: predictions need neither.
    `points` are the strengths of balance that were chosen, where the settings have an aim.
    """
    with bar("Learning the base session", 4) as advance:
        held = hold_out(shots.codes, settings.seed)
        embeddings = Embeddings(shots, settings, _parts(shots.codes, held, settings.seed, folds=confidence))
        g = embeddings.of_all()
        h = g(shots.x)
        advance(1)
        concepts = concepts or fit_concepts(shots, settings)
        prior = None
        if concepts.measured is not None and concepts.held_out is not None:
            rows = concepts.measured
            prior = measure(h[rows], g(concepts.held_out), shots.codes[rows], seed=settings.seed)
        advance(1)
        kept = embeddings.of_rows(~held)
        w = class_means(kept(shots.x[~held]), shots.codes[~held]) if class_vectors is None else class_vectors
        cosines, codes = kept(shots.x[held]) @ unit(w).T, shots.codes[held]
        own_scores = calibration.own_scores_of_held_out(cosines, codes, len(shots.labels))
        advance(1)
        scale, detector = calibration.DEFAULT_TEMPERATURE, None
        base_classes = torch.ones(len(shots.labels), dtype=torch.bool)
        if confidence:
            scale = calibration.temperature(
                cosines - settings.strength(points) * calibration.offsets(own_scores, base_classes), codes
            )
            detector = fit_detector(shots, held, embeddings.of_rows, class_vectors=class_vectors, seed=settings.seed)
        advance(1)
    means = class_means(h, shots.codes)
    base = Base(
        settings.power, g, concepts.bank, prior,
        temperature=scale, framed=class_vectors is not None, unknown_detector=detector, points=points,
    )  # fmt: skip
    w = unit(means if class_vectors is None else class_vectors)
    return base, ClassRows(
        shots.labels, shots.counts, means, means, vectors=w, own_scores=own_scores, base=base_classes
    )  # fmt: skip


@torch.no_grad()
def teach(base: Base, memory: ClassRows, shots: Shots, settings: Settings) -> ClassRows:
    """Learn one session: coefficients on the frozen bank, induced vectors through g, fine-tuning anchored at them.

    Some of its classes may be known already. Every class stands for itself: Eq. final_loss couples none of them, so
    classes that are not in this session stay as they are, and to teach classes one after the other is to teach them
    together.
    """
    h = base.embedding(shots.x)
    r = base.embedding(base.bank.reconstruct(shots.x))  # Eq. inf, hi
    session = SessionEmbeddings(
        h, r, shots.codes, shots.counts, means=class_means(h, shots.codes), induced=class_means(r, shots.codes)
    )
    row_of = {label: row for row, label in enumerate(memory.labels)}
    known = torch.tensor([label in row_of for label in shots.labels])
    old = memory.subset([row_of.get(label, 0) for label in shots.labels])  # any row where the class is new
    of_base = known & old.base
    session.induced[of_base] = session.means[of_base]  # a base class has no prior but its own mean
    past = replace(old, counts=torch.where(known, old.counts, 0))
    means = running_mean(past.means, past.counts, session.means, session.counts)
    vectors, a = means, torch.zeros(len(known))
    if settings.with_concepts:
        a = _prior_shares(settings, base.prior, past.counts + session.counts)
        induced = running_mean(past.induced, past.counts, session.induced, session.counts)
        vectors = _fine_tune(settings, means, induced, a, session=session, past=past)
    if settings.with_teen:
        vectors = solve.teen(vectors, memory.vectors[memory.base], settings.teen)
    vectors = unit(vectors)
    vectors[of_base] = old.vectors[of_base] if base.framed else unit(means[of_base])
    single = float(calibration.mean_pair_cosine(memory.means[memory.base], memory.counts[memory.base]).clamp(0, 1))
    own_scores = calibration.own_scores_of_shots(session, a, vectors, single)
    own_scores[known] = (session.means * old.vectors).sum(1)[known]  # by what was known before these images
    return ClassRows(
        shots.labels, session.counts, session.means, session.induced,
        vectors=vectors, own_scores=own_scores, base=torch.zeros_like(known),
    )  # fmt: skip


@torch.no_grad()
def score(base: Base, memory: ClassRows, x: Tensor, settings: Settings, *, known: bool = False) -> Scores:
    """Compare images x [n d] with all classes; with `known`, also say whether their class was ever taught."""
    raw = base.embedding.transform(x)
    cosines = unit(raw) @ memory.vectors.T
    probability = None
    if known and base.unknown_detector is not None:
        facts = evidence(cosines, raw.norm(dim=1), tightness(memory.means, memory.counts))
        probability = base.unknown_detector.known(facts)
    return Scores(cosines, class_offsets(base, memory, settings), probability)


def class_offsets(base: Base, memory: ClassRows, settings: Settings) -> Tensor:
    """Give what is subtracted from the cosine of each class before they are compared, [k]."""
    strength = settings.strength(base.points)
    return strength * calibration.offsets(memory.own_scores, memory.base) + settings.bias * memory.base


def _parts(codes: Tensor, held: Tensor, seed: int, *, folds: bool) -> Tensor:
    """Number the parts of the base images that g is learnt without: `held` ones and, with `folds`, some classes."""
    parts = held.long()
    if folds:
        for number, fold in enumerate(class_folds(codes, FOLDS, torch.Generator().manual_seed(seed))):
            parts += 2 * number * torch.isin(codes, fold)
    return parts


def _prior_shares(settings: Settings, prior: PriorWeight | None, counts: Tensor) -> Tensor:
    """Give the prior's share a = α/(1 + α) of each class, by its number of images; [k]."""
    if settings.alpha != "auto":
        return torch.full((len(counts),), 1.0 if math.isinf(settings.alpha) else settings.alpha / (1 + settings.alpha))
    if prior is None:
        raise InputError(
            "α is 'auto', but it was a number, or concepts took no part, when the base session was learnt, so that "
            "the prior's weight was not measured; `fit` again, or give α as a number."
        )
    shares = {n: prior.at(n) for n in set(counts.tolist())}
    return torch.tensor([shares[n] for n in counts.tolist()])


def _fine_tune(
    settings: Settings, means: Tensor, induced: Tensor, a: Tensor, *, session: SessionEmbeddings, past: ClassRows
) -> Tensor:
    """Solve Eq. final_loss for each class; what was seen of it in earlier sessions takes part as its mean."""
    if settings.reading == "posterior":
        method = solve.posterior if settings.solver == "exact" else solve.posterior_by_descent
        return method(means, induced, a)
    solver = solve.literal if settings.solver == "exact" else solve.literal_by_descent
    vectors = unit(induced)  # where the prior is all, a = 1, it stays
    for row in (a < 1).nonzero()[:, 0].tolist():
        shots, n = session.embeddings[session.codes == row], int(past.counts[row])
        rows = torch.cat([past.means[row, None], shots]) if n else shots
        weights = torch.tensor([float(n)] * bool(n) + [1.0] * len(shots)) / (n + len(shots))
        vectors[row] = solver(rows, weights, vectors[row], float(a[row] / (1 - a[row])))
    return vectors

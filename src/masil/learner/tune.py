"""Choose what the paper leaves open on base classes that play novel ones: never on test data.

Some base classes are held out of the bank, the covariance and the means, and then taught in one session from a few
shots; images of all classes that no one has learnt from say what works. Several such plays are averaged.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from masil.errors import InputError, NoEffectWarning, lookup
from masil.learner.balance import expected_of_held_out, offsets
from masil.learner.base import (
    Base,
    fit_bank,
    make_embedding,
    measure_prior,
    powered,
    reconstruct_held_out,
    rehearse,
)
from masil.learner.confidence import DEFAULT, hold_out
from masil.learner.encoder import Encoder
from masil.learner.frame import by_images, read_vectors
from masil.learner.labels import Label, places, read_labels
from masil.learner.masil import Masil
from masil.learner.memory import Memory
from masil.learner.session import Alpha, Rules, base_lesson, teach
from masil.learner.settings import read_rules
from masil.progress import track
from masil.protocol import harmonic_mean

MEASURES = ("harmonic_mean", "accuracy")
SHRINKAGES: Sequence[float | str] = (0.3, 1.0, 3.0)
ALPHAS: Sequence[Alpha] = ("auto", 0.0)


@final
@dataclass(frozen=True)
class Trial:
    """How one choice of parameters did, on average over plays; shares are between 0 and 1."""

    shrinkage: float | str
    concepts: int
    alpha: Alpha
    bias: float
    accuracy: float
    base: float
    novel: float
    harmonic_mean: float


@final
@dataclass(frozen=True)
class Tuned:
    """The choice, ready for `Masil(**chosen)`, and every trial, best first."""

    chosen: dict[str, Any]
    trials: tuple[Trial, ...]
    measure: str
    plays: int


@final
@dataclass(frozen=True, eq=False)
class Play:
    """One division of base data, all by position: to fit on, to teach from, to be judged by."""

    base: tuple[int, ...]
    novel: tuple[int, ...]
    fit: Tensor
    shots: Tensor
    test: Tensor


def tune(
    images: Any,
    labels: Any,
    model: Masil | None = None,
    *,
    shots: int = 5,
    novel: float = 0.4,
    plays: int = 2,
    shrinkage: Sequence[float | str] | None = None,
    concepts: Sequence[int] | None = None,
    alpha: Sequence[Alpha] | None = None,
    bias: Sequence[float] = (0.0, 0.005, 0.01, 0.02, 0.03),
    measure: str = "harmonic_mean",
    seed: int = 0,
) -> Tuned:
    """Try every combination on base images and give the best; `model` says everything that is not tried.

    Args:
        images: of the base session, as for `fit`.
        labels: their classes.
        model: whose backbone, power, form of g and other parameters to use; a `Masil()` if not given. Not changed.
        shots: images of each class that plays novel.
        novel: share of the classes that play novel.
        plays: divisions to average over.
        shrinkage: to try, where g is whitening: .3, 1 and 3 if not given.
        concepts: to try; the model's own if not given.
        alpha: to try, where concepts take part: "auto" and 0 if not given.
        bias: to try.
        measure: what decides, "harmonic_mean" (of base and novel accuracy) or "accuracy".
        seed: of the divisions.

    """
    lookup("measure", measure, dict.fromkeys(MEASURES))
    model = Masil() if model is None else model
    rules = read_rules(model)
    shrinkages = _tried("shrinkage", shrinkage, SHRINKAGES, model, model.embedding == "whitening")
    alphas = _tried("alpha", alpha, ALPHAS, model, rules.with_concepts)
    encoder = Encoder.make(model.backbone, model.weights, model.seed, model.device)
    given = encoder.read(images)
    names = read_labels(labels, len(given))
    classes = tuple(sorted(set(names)))
    codes = places(names, classes)
    vectors, certain = read_vectors(model.class_vectors, model.class_names, model.embedding, classes)
    x = powered(encoder.activations(given), model.power)
    crops = encoder.crops(given, model.crops, model.side, model.seed)
    rows = x if crops is None else powered(crops, model.power)
    if vectors is not None and not certain:
        vectors = by_images(vectors, make_embedding(model.embedding, x, codes, model.shrinkage), x, codes)
    grid = list(itertools.product(concepts or (model.concepts,), shrinkages, alphas))
    sums: dict[tuple[Any, ...], Tensor] = {}
    divisions = [divide(codes, shots, novel, seed + at) for at in range(plays)]
    for play, v in track(
        list(itertools.product(divisions, dict.fromkeys(v for v, _, _ in grid))), "Playing novel classes"
    ):
        choices = [(s, a) for u, s, a in grid if u == v]
        for (s, a), scores in _scores(model, x, rows, codes, vectors, play, v, choices, classes):
            for b in bias:
                sums[s, v, a, b] = sums.get((s, v, a, b), 0) + _judge(scores, codes, play, b)
    trials = [Trial(*key, *(total / plays).tolist()) for key, total in sums.items()]
    trials.sort(key=lambda trial: -getattr(trial, measure))
    best = trials[0]
    chosen = {"shrinkage": best.shrinkage, "concepts": best.concepts, "alpha": best.alpha, "bias": best.bias}
    return Tuned(chosen, tuple(trials), measure, plays)


def divide(labels: Tensor, shots: int, novel: float, seed: int) -> Play:
    """Let a share of the classes play novel, and a fifth of each class's images, at least one, judge them all."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.unique(labels)
    order = classes[torch.randperm(len(classes), generator=generator)].tolist()
    away = round(novel * len(order))
    if not 1 <= away <= len(order) - 2:
        raise InputError(
            f"A share {novel} of {len(order)} classes is {away} that play novel; at least 1 must, and 2 must not."
        )
    roles: dict[str, list[Tensor]] = {"fit": [], "shots": [], "test": []}
    for at, label in enumerate(order):
        rows = (labels == label).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        need = shots if at < away else 1
        test = max(1, len(rows) // 5)
        if len(rows) < need + 1:
            raise InputError(
                f"A class has {len(rows)} images, but to play it takes {need} to learn from and 1 to be judged by; "
                "add images, or lower `shots`."
            )
        test = min(test, len(rows) - need)
        roles["test"].append(rows[:test])
        roles["shots" if at < away else "fit"].append(rows[test : test + shots] if at < away else rows[test:])
    parts = {role: torch.cat(found).sort().values for role, found in roles.items()}
    return Play(tuple(sorted(order[away:])), tuple(sorted(order[:away])), **parts)


def _tried(name: str, given: Sequence[Any] | None, usual: Sequence[Any], model: Masil, counts: bool) -> Sequence[Any]:
    """Give the values to try of a parameter: those given, the usual ones, or the model's own where it has no effect."""
    if counts:
        return usual if given is None else given
    if given is not None:
        text = f"`{name}` is not tried: with this model's embedding and calibration it has no effect."
        warnings.warn(text, NoEffectWarning, stacklevel=3)
    return (getattr(model, name),)


def _scores(
    model: Masil,
    x: Tensor,
    rows: Tensor,
    codes: Tensor,
    vectors: Tensor | None,
    play: Play,
    v: int,
    choices: Sequence[tuple[float | str, Alpha]],
    classes: tuple[Label, ...],
) -> Iterator[tuple[tuple[float | str, Alpha], Tensor]]:
    """Yield for each shrinkage and α the scores [n k] of the test images, base classes first."""
    per = len(rows) // len(x)
    used = (play.fit[:, None] * per + torch.arange(per)).flatten()
    base_names, novel_names = (tuple(classes[c] for c in own) for own in (play.base, play.novel))
    own = torch.searchsorted(torch.tensor(play.base), codes[play.fit])
    bank = fit_bank(rows[used], v, model.seed, max_iterations=1000)
    frame = None if vectors is None else vectors[list(play.base)]
    reconstructed = None
    if any(a == "auto" for _, a in choices):
        reconstructed = reconstruct_held_out(x[play.fit], own, rows[used], own.repeat_interleave(per), v, model.seed)
    held = hold_out(own, model.seed)
    new = torch.searchsorted(torch.tensor(play.novel), codes[play.shots])
    made: dict[float | str, tuple[Base, Memory]] = {}  # a base session for each shrinkage
    for s, a in choices:
        if s not in made:
            g = make_embedding(model.embedding, x[play.fit], own, s)
            prior = None if reconstructed is None else measure_prior(g, x[play.fit], reconstructed, own, model.seed)
            base = Base(1.0, g, bank, prior, DEFAULT, framed=False)  # x has its power already
            judged = rehearse(x[play.fit], own, model.embedding, s, frame, held)
            expected = expected_of_held_out(judged, own[held], len(play.base))
            lesson = base_lesson(base, x[play.fit], own, base_names, frame, expected, "", "")
            made[s] = base, Memory.of([lesson])
        base, memory = made[s]
        rules = Rules(a, model.reading, model.solver, model.calibration, model.teen)
        memory = memory.after(teach(base, memory, rules, x[play.shots], new, novel_names, number=1, who="", note=""))
        cosines = base.embed(x[play.test]) @ memory.vectors.T
        yield (s, a), cosines - model.balance * offsets(memory.expected, memory.base)


def _judge(scores: Tensor, codes: Tensor, play: Play, bias: float) -> Tensor:
    """Give accuracy, base, novel and their harmonic mean [4]."""
    k = len(play.base)
    predicted = torch.tensor([*play.base, *play.novel])[torch.cat([scores[:, :k] - bias, scores[:, k:]], 1).argmax(1)]
    truth = codes[play.test]
    right = (predicted == truth).double()
    old = torch.isin(truth, torch.tensor(play.base))
    base, novel = float(right[old].mean()), float(right[~old].mean())
    return torch.tensor([float(right.mean()), base, novel, harmonic_mean(base, novel)], dtype=torch.float64)

"""One session: coefficients on the frozen bank, induced vectors through g, fine-tuning anchored at them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from masil.collapse import class_means
from masil.errors import InputError, lookup
from masil.learner import vectors as solve
from masil.learner.balance import expected_of_shots, pairwise
from masil.learner.base import Base
from masil.learner.labels import Label
from masil.learner.memory import Lesson, Memory, now, running, unit

Alpha = float | Literal["auto"]
READINGS = ("posterior", "literal")
SOLVERS = ("exact", "sgdr")
CALIBRATIONS = ("concepts", "teen", "both")


@final
@dataclass(frozen=True)
class Rules:
    """How a class vector is made of shots and prior; checked when made."""

    alpha: Alpha
    reading: str
    solver: str
    calibration: str | None
    teen: float

    def __post_init__(self) -> None:
        if self.alpha != "auto" and (not isinstance(self.alpha, int | float) or not self.alpha >= 0):
            raise InputError(f"α is {self.alpha!r}; it must be a number >= 0 (inf: concepts alone), or 'auto'.")
        lookup("reading of the fine-tuning loss", self.reading, dict.fromkeys(READINGS))
        lookup("fine-tuning solver", self.solver, dict.fromkeys(SOLVERS))
        if self.calibration is not None:
            lookup("calibration", self.calibration, dict.fromkeys(CALIBRATIONS))
        if not 0 <= self.teen <= 1:
            raise InputError(f"TEEN's weight is {self.teen}, but must lie between 0 and 1.")

    @property
    def with_concepts(self) -> bool:
        """Whether induced vectors take part."""
        return self.calibration in ("concepts", "both")

    def shares(self, base: Base, counts: Tensor) -> Tensor:
        """Give the prior's share a = α/(1 + α) of each class, by its number of images; [k]."""
        if self.alpha != "auto":
            a = 1.0 if math.isinf(self.alpha) else self.alpha / (1 + self.alpha)
            return torch.full((len(counts),), a)
        if base.prior is None:
            raise InputError(
                "α is 'auto', but it was a number, or concepts took no part, when the base session was learnt, so that "
                "the prior's weight was not measured; `fit` again, or give α as a number."
            )
        known = {n: base.prior.at(n) for n in set(counts.tolist())}
        return torch.tensor([known[n] for n in counts.tolist()])


@torch.no_grad()
def base_lesson(
    base: Base,
    x: Tensor,
    codes: Tensor,
    labels: tuple[Label, ...],
    vectors: Tensor | None,
    expected: Tensor,
    who: str,
    note: str,
) -> Lesson:
    """Take in the base classes from x = a^p: ŵ = s, the mean itself, or the vectors the base session was trained to.

    `expected` [k] is the score that an image of each class, which the class was not made of, gets from it.
    """
    means = class_means(base.embedding(x), codes)
    counts = torch.bincount(codes, minlength=len(labels))
    w = unit(means if vectors is None else vectors)
    return Lesson(0, now(), who, note, labels, counts, means, means, w, expected)


@torch.no_grad()
def teach(
    base: Base,
    memory: Memory,
    rules: Rules,
    activations: Tensor,
    codes: Tensor,
    labels: tuple[Label, ...],
    *,
    number: int,
    who: str,
    note: str,
) -> Lesson:
    """Learn k classes, some perhaps known, from activations [n d] with places `codes` [n] among `labels`.

    Every class stands for itself: Eq. final_loss couples none of them, so those not in this session stay as they are,
    and to teach classes one after the other is to teach them together.
    """
    k = len(labels)
    x = base.door(activations)
    h = base.embedding(x)
    shots = torch.bincount(codes, minlength=k)
    means = class_means(h, codes)
    r = base.embedding(base.bank.reconstruct(x))  # Eq. inf, hi
    induced = class_means(r, codes)  # Eq. weights
    place = {label: row for row, label in enumerate(memory.labels)}
    known = torch.tensor([label in place for label in labels])
    at = torch.tensor([place.get(label, 0) for label in labels])
    of_base = known & memory.base[at]
    induced[of_base] = means[of_base]  # a base class has no prior but its own mean
    before = torch.where(known, memory.counts[at], 0)
    whole = running(memory.means[at], before, means, shots)
    prior = running(memory.induced[at], before, induced, shots)
    vectors, a = whole, torch.zeros(k)
    if rules.with_concepts:
        a = rules.shares(base, before + shots)
        vectors = _fine_tune(rules, whole, prior, a, h, codes, memory.means[at], before)
    if rules.calibration in ("teen", "both"):
        vectors = solve.teen(vectors, memory.vectors[memory.base], rules.teen)
    vectors = unit(vectors)
    vectors[of_base] = memory.vectors[at[of_base]] if base.framed else unit(whole[of_base])
    alone = float(pairwise(memory.means[memory.base], memory.counts[memory.base]).clamp(0, 1))
    expected = expected_of_shots(h, r, codes, means, induced, a, vectors, alone)
    expected[known] = (means * memory.vectors[at]).sum(1)[known]  # by what was known before these images
    return Lesson(number, now(), who, note, labels, shots, means, induced, vectors, expected)


def _fine_tune(
    rules: Rules, whole: Tensor, prior: Tensor, a: Tensor, h: Tensor, codes: Tensor, past: Tensor, before: Tensor
) -> Tensor:
    """Solve Eq. final_loss for each class; what was seen of it in earlier sessions takes part as its mean."""
    if rules.reading == "posterior":
        method = solve.posterior if rules.solver == "exact" else solve.posterior_by_descent
        return method(whole, prior, a)
    solver = solve.literal if rules.solver == "exact" else solve.literal_by_descent
    vectors = unit(prior)  # where the prior is all, a = 1, it stays
    for row in (a < 1).nonzero()[:, 0].tolist():
        shots, n = h[codes == row], int(before[row])
        rows = torch.cat([past[row, None], shots]) if n else shots
        weights = torch.tensor([float(n)] * bool(n) + [1.0] * len(shots)) / (n + len(shots))
        vectors[row] = solver(rows, weights, vectors[row], float(a[row] / (1 - a[row])))
    return vectors

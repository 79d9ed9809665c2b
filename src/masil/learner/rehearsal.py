"""Base classes play novel ones: held out of the bank, the covariance and the means, then taught from a few shots.

So are the two operating points found: the strength of balance that is best for all classes together, and the fairest to
new ones. More of it finds more new classes and fewer base ones. Which does best by either measure is never seen on test
images.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor

from masil.errors import InputError
from masil.learner.core import Scores, fit_base, score, teach
from masil.learner.encoder import BaseSession
from masil.learner.prior import fit_concepts
from masil.learner.rows import Shots
from masil.learner.settings import STRENGTHS, Alpha, Settings
from masil.progress import track
from masil.protocol import Play, Protocol, harmonic_mean, rehearse

SHOTS, SHARE = 5, 0.4  # of a class that plays novel, and of the classes: those of the usual protocols


@final
@dataclass(frozen=True, eq=False)
class Rehearsed:
    """Scores of images that nothing was learnt from, where base classes play novel; those that do not come first."""

    scores: Tensor  # [n k], not balanced
    offsets: Tensor  # [k], what a balance of strength 1 takes off
    labels: Tensor  # int64 [n]
    base: int  # classes


def operating_points(rehearsals: Iterable[Rehearsed]) -> dict[str, float]:
    """Give for each aim the strength that does best on average; 1 where none does anything."""
    sums = torch.zeros(len(STRENGTHS), 4, dtype=torch.float64)
    for play in rehearsals:
        tried = (play.scores - strength * play.offsets for strength in STRENGTHS)
        judged = torch.stack([judge(scores, play.labels, play.base) for scores in tried])
        sums += judged.float()  # what differs by rounding alone is to be equal
    accuracy, _, _, harmonic = sums.T
    by_aim = {"accuracy": accuracy, "harmonic": harmonic}
    return {aim: STRENGTHS[int(sums.argmax())] if bool(sums.any()) else 1.0 for aim, sums in by_aim.items()}


def judge(scores: Tensor, labels: Tensor, base: int) -> Tensor:
    """Give accuracy, that of base and of novel classes, and the harmonic mean of those two; float64 [4]."""
    right = (scores.argmax(1) == labels).double()
    old, new = float(right[labels < base].mean()), float(right[labels >= base].mean())
    return torch.tensor([float(right.mean()), old, new, harmonic_mean(old, new)], dtype=torch.float64)


def choose_points(data: BaseSession, like: Protocol | None) -> dict[str, float]:
    """Give the strength of balance that does best for each aim, with shots and share of novel classes `like` these."""
    counts = data.shots.counts
    fewest = int(counts.min())
    if len(counts) < 3 or fewest < 3:
        raise InputError(
            f"`aim` is {data.settings.aim!r}, which is chosen on base classes that play novel; that takes 3 classes of "
            f"3 images, but there are {len(counts)}, and the smallest has {fewest}. Add images, or give `balance` "
            "instead."
        )
    shots, share = (SHOTS, SHARE) if like is None else (like.shot, like.novel_share)
    plays = list(rehearse(data.shots.codes, min(shots, fewest - 1), share, data.settings.seed))
    return operating_points(_rehearsed(data, play) for play in track(plays, "Playing novel classes"))


def play_novel(
    data: BaseSession, play: Play, settings: Settings, shrinkages: Sequence[float | str], *, alphas: Sequence[Alpha]
) -> Iterator[tuple[Settings, Scores]]:
    """Fit, teach and score for each shrinkage and α; yield how the test images compare, base classes first."""
    base_shots, novel_shots = _shots_of(data.shots, play.fit, play.base), _shots_of(data.shots, play.shots, play.novel)
    crops = None
    if data.crops is not None:
        crops = data.crops.view(len(data.shots.x), -1, data.crops.shape[1])[play.fit].flatten(0, 1)
    frame = None if data.class_vectors is None else data.class_vectors[list(play.base)]
    concepts = fit_concepts(base_shots, settings, crops)
    for shrinkage in shrinkages:
        whitened = replace(settings, shrinkage=shrinkage)
        base, memory = fit_base(base_shots, whitened, concepts=concepts, class_vectors=frame, confidence=False)
        for alpha in alphas:
            tried = replace(whitened, alpha=alpha)
            taught = memory.updated(teach(base, memory, novel_shots, tried))
            yield tried, score(base, taught, data.shots.x[play.test], tried)


def _rehearsed(data: BaseSession, play: Play) -> Rehearsed:
    settings = replace(data.settings, aim=None, balance=1.0, bias=0.0)
    ((_, scores),) = play_novel(data, play, settings, (settings.shrinkage,), alphas=(settings.alpha,))
    k = len(play.base)
    cosines = scores.cosines.clone()
    cosines[:, :k] -= data.settings.bias
    return Rehearsed(cosines, scores.offsets, true_columns(data, play), k)


def true_columns(data: BaseSession, play: Play) -> Tensor:
    """Give the column of scores that each test image's own class has: base classes come first; int64 [n]."""
    return torch.tensor([*play.base, *play.novel]).argsort()[data.shots.codes[play.test]]


def _shots_of(shots: Shots, rows: Tensor, classes: tuple[int, ...]) -> Shots:
    """Give the images at `rows`, all of these classes, which are numbered anew."""
    codes = torch.searchsorted(torch.tensor(classes), shots.codes[rows])
    return Shots(shots.x[rows], codes, tuple(shots.labels[code] for code in classes))

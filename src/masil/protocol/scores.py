"""What counts as right. Pure functions of predicted and true labels; shares are between 0 and 1."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from masil.errors import InputError
from masil.protocol.protocol import Protocol


@final
@dataclass(frozen=True)
class SessionScore:
    """How a session's whole test set was classified. `novel` and `harmonic_mean` are None in the base session."""

    session: int
    accuracy: float  # correct / total over every class seen so far
    base: float  # over test images of base classes
    novel: float | None  # over test images of all novel classes so far
    harmonic_mean: float | None  # of base and novel
    by_session: tuple[float, ...]  # over test images of the classes that session 0, 1, … taught
    correct: int
    total: int


@final
@dataclass(frozen=True)
class Scores:
    """A whole protocol's score."""

    average: float  # mean of the sessions' accuracies
    performance_drop: float  # first accuracy − last
    generalised: float  # gAcc


@final
@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (n − 1) and 95 % interval of the mean (Student's t) over draws."""

    n: int
    mean: float
    std: float
    low: float
    high: float


def score_session(protocol: Protocol, session: int, predicted: Tensor, truth: Tensor) -> SessionScore:
    """Score the predictions of one session's test set; a prediction of a class not yet taught is refused."""
    _check(protocol, session, predicted, truth)
    taught_in = protocol.session_of(truth)
    totals = torch.bincount(taught_in, minlength=session + 1).tolist()
    rights = torch.bincount(taught_in[predicted == truth], minlength=session + 1).tolist()
    if 0 in totals:
        raise InputError(f"The test set of session {session} has no image of what session {totals.index(0)} taught.")
    base = rights[0] / totals[0]
    novel = sum(rights[1:]) / sum(totals[1:]) if session else None
    return SessionScore(
        session,
        accuracy=sum(rights) / sum(totals),
        base=base,
        novel=novel,
        harmonic_mean=None if novel is None else harmonic_mean(base, novel),
        by_session=tuple(right / total for right, total in zip(rights, totals, strict=True)),
        correct=sum(rights),
        total=sum(totals),
    )


def confusion_by_session(protocol: Protocol, session: int, predicted: Tensor, truth: Tensor) -> Tensor:
    """Count test images [s s]: row, the session that taught the true class; column, the predicted one."""
    _check(protocol, session, predicted, truth)
    size = session + 1
    cells = protocol.session_of(truth) * size + protocol.session_of(predicted)
    return torch.bincount(cells, minlength=size * size).reshape(size, size)


def summarise(protocol: Protocol, sessions: Sequence[SessionScore]) -> Scores:
    """Sum up the sessions' scores, which must be those of session 0, 1, 2, …"""
    if [score.session for score in sessions] != list(range(len(sessions))) or not sessions:
        raise InputError(f"Scores of sessions {[s.session for s in sessions]} were given; they must be 0, 1, 2, …")
    accuracies = [score.accuracy for score in sessions]
    return Scores(
        average=sum(accuracies) / len(accuracies),
        performance_drop=accuracies[0] - accuracies[-1],
        generalised=generalised_accuracy(
            [score.by_session for score in sessions], protocol.base_classes / protocol.way
        ),
    )


def harmonic_mean(base: float, novel: float) -> float:
    """2BN / (B + N), and 0 where both are 0."""
    return 2 * base * novel / (base + novel) if base + novel else 0.0


def generalised_accuracy(by_session: Sequence[Sequence[float]], most: float) -> float:
    """The area under A(a) divided by its range, a = 0 … `most` = |C₀| / way (gAcc, Tang et al., ECCV 2024).

    A(a) is the mean over sessions t of (a · A₀ + Σⱼ Aⱼ) / (a + t), j = 1 … t: the base classes weigh as much as `a`
    sessions. In session 0 that is A₀ for any a > 0, and by continuity at a = 0. The area is taken by trapezia over
    whole a (and `most`, where it is not whole).
    """
    grid = sorted({*range(math.floor(most) + 1), most})
    curve = [sum(_weighted(shares, a) for shares in by_session) / len(by_session) for a in grid]
    if len(grid) == 1:
        return curve[0]
    steps = zip(grid, grid[1:], curve, curve[1:], strict=False)
    return math.fsum((b - a) * (low + high) / 2 for a, b, low, high in steps) / most


def mean_and_interval(values: Sequence[float]) -> Spread:
    """Summarise one figure over draws. With one value the deviation is unknown (NaN)."""
    from scipy import special  # here, because to answer takes none of it

    n = len(values)
    if n == 0:
        raise InputError("There are no values to summarise.")
    mean = math.fsum(values) / n
    if n == 1:
        return Spread(n, mean, std=math.nan, low=math.nan, high=math.nan)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(special.stdtrit(n - 1, 0.975)) * std / math.sqrt(n)
    return Spread(n, mean, std, low=mean - half, high=mean + half)


def _weighted(shares: Sequence[float], a: float) -> float:
    base, *novel = shares
    return (a * base + sum(novel)) / (a + len(novel)) if novel else base


def _check(protocol: Protocol, session: int, predicted: Tensor, truth: Tensor) -> None:
    """Refuse what cannot be a session's answers."""
    if predicted.shape != truth.shape or truth.ndim != 1:
        raise InputError(f"There are {tuple(predicted.shape)} predictions for {tuple(truth.shape)} test images.")
    if len(truth) == 0:
        raise InputError(f"Session {session} has no test images to be judged by.")
    for labels, text in ((predicted, "predicts"), (truth, "is tested on")):
        lowest, highest = int(labels.min()), int(labels.max())
        if lowest < 0 or highest >= protocol.seen(session).stop:
            wrong = lowest if lowest < 0 else highest
            raise InputError(
                f"Session {session} {text} class {wrong}, but only classes 0 … {protocol.seen(session).stop - 1} "
                "have been taught by then."
            )

"""One method through one protocol: teach a session, test on every class seen so far, go on."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from masil.benchmark.separation import class_cosines, few_of_each
from masil.methods import Checked, Queries, Samples
from masil.protocol import Protocol, SessionScore, confusion_by_session, score_session

Cosines = dict[str, tuple[float, float]]  # "train" and "test": of class means to their own vector and to the others


@final
@dataclass(frozen=True)
class SessionData:
    """A session as a method meets it: what is taught, and every test image that it is judged by."""

    number: int
    taught: Samples
    tests: Queries
    truth: Tensor


@final
@dataclass(frozen=True)
class SessionResult:
    """A session's score and what it cost, the making of activations not counted."""

    score: SessionScore
    confusion: Tensor  # [s s] test images, by the sessions that taught the true and the predicted class
    learn_seconds: float
    predict_seconds: float
    cosines: Cosines = field(default_factory=dict)


def play(
    protocol: Protocol, sessions: Iterable[SessionData], method: Checked, fit_seconds: float
) -> Iterator[SessionResult]:
    """Teach and judge session by session a method that took `fit_seconds` to learn the base session."""
    shown: list[tuple[Tensor, Tensor]] = []
    for session in sessions:
        start = time.perf_counter()
        if session.number:
            method.learn(session.taught)
        learnt = time.perf_counter()
        predicted = method.predict(session.tests)
        answered = time.perf_counter()
        few = few_of_each(session.taught.labels)
        shown.append((session.taught.activations[few], session.taught.labels[few]))
        answers = (protocol, session.number, predicted, session.truth)
        yield SessionResult(
            score=score_session(*answers),
            confusion=confusion_by_session(*answers),
            learn_seconds=learnt - start if session.number else fit_seconds,
            predict_seconds=answered - learnt,
            cosines=_cosines(method, shown, session),
        )


def _cosines(method: Checked, shown: list[tuple[Tensor, Tensor]], session: SessionData) -> Cosines:
    if method.method.sees == "images":  # it would have to run its network over everything once more
        return {}
    activations, labels = (torch.cat(parts) for parts in zip(*shown, strict=True))
    pairs = {
        "train": class_cosines(method, activations, labels),
        "test": class_cosines(method, session.tests.activations, session.truth),
    }
    return {name: pair for name, pair in pairs.items() if pair is not None}

"""One method through one protocol: teach a session, test on every class seen so far, go on."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from masil.benchmark.separation import class_cosines, few_of_each
from masil.methods import Method
from masil.protocol import Protocol, SessionScore, confusion_by_session, score_session

Cosines = dict[str, tuple[float, float]]  # "train" and "test": of class means to their own vector and to the others


@final
@dataclass(frozen=True)
class Lesson:
    """A session as a method meets it: activations [n d] of what is taught, and of every test image it is judged by."""

    number: int
    activations: Tensor
    labels: Tensor
    tests: Tensor
    truth: Tensor


@final
@dataclass(frozen=True)
class Played:
    """A session's score and what it cost, the making of activations not counted."""

    score: SessionScore
    confusion: Tensor  # [s s] test images, by the sessions that taught the true and the predicted class
    learn_seconds: float
    predict_seconds: float
    cosines: Cosines = field(default_factory=dict)


def play(
    protocol: Protocol, lessons: Iterable[Lesson], method: Method, *, fitted: float | None = None
) -> Iterator[Played]:
    """Teach and judge session by session. A method that knows the base session already took `fitted` seconds for it."""
    taught: list[tuple[Tensor, Tensor]] = []
    for lesson in lessons:
        start = time.perf_counter()
        if lesson.number:
            method.learn(lesson.activations, lesson.labels)
        elif fitted is None:
            method.fit(lesson.activations, lesson.labels)
        learnt = time.perf_counter()
        predicted = method.predict(lesson.tests)
        answered = time.perf_counter()
        few = few_of_each(lesson.labels)
        taught.append((lesson.activations[few], lesson.labels[few]))
        answers = (protocol, lesson.number, predicted.cpu(), lesson.truth)
        yield Played(
            score=score_session(*answers),
            confusion=confusion_by_session(*answers),
            learn_seconds=learnt - start if lesson.number or fitted is None else fitted,
            predict_seconds=answered - learnt,
            cosines=_cosines(method, taught, lesson),
        )


def _cosines(method: Method, taught: Sequence[tuple[Tensor, Tensor]], lesson: Lesson) -> Cosines:
    shown, labels = (torch.cat(parts) for parts in zip(*taught, strict=True))
    found = {
        "train": class_cosines(method, shown, labels),
        "test": class_cosines(method, lesson.tests, lesson.truth),
    }
    return {name: pair for name, pair in found.items() if pair is not None}

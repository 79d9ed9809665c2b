"""What a learner says, as frozen results that the command line and the studio only show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from masil.errors import DataError, InputError
from masil.learner.inputs import Label
from masil.learner.rows import ClassRows, Event, SessionRecord
from masil.learner.unknown import auroc
from masil.protocol import harmonic_mean
from masil.wording import percent


@final
@dataclass(frozen=True)
class Ranked:
    """A class and its probability."""

    label: Label
    probability: float


@final
@dataclass(frozen=True)
class Answer:
    """What a learner says of one image: the most probable classes, or why it cannot be read."""

    top: tuple[Ranked, ...]  # most probable first; empty for an image that cannot be read
    known: float | None  # probability that its class was taught, if known and unknown images were equally frequent
    unknown: bool | None  # whether `known` is so low that the answer is "never taught"; None: the model cannot tell
    fault: str | None = None  # why the image cannot be read

    @property
    def certainty(self) -> str:
        """How sure the answer is, in words."""
        sure = f"confidence {percent(self.top[0].probability)}"
        if self.known is None:
            return sure
        return f"{sure}, known {percent(self.known)}{', so perhaps unknown' if self.unknown else ''}"


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """What a learner says of n images: how probable each class is if it is one of these, and whether it is."""

    labels: tuple[Label, ...]
    probabilities: Tensor  # float64 [n k]
    known: Tensor | None  # float64 [n], see `Answer`; None where the model has not learnt to tell
    threshold: float = 0.0  # of `known`, below which an image is called unknown
    faults: Mapping[int, DataError] = field(default_factory=dict)  # images that cannot be read; their rows mean nothing

    def probability_known(self) -> Tensor:
        """Give `known`, or say why there is none."""
        if self.known is None:
            raise InputError(
                "This model cannot tell what it was never taught: its base session was too small to learn that from "
                "(it takes 3 classes, and 3 images of several), or was saved before masil could; fit it again."
            )
        return self.known

    def rejected(self) -> Tensor:
        """Say of each image whether its class seems never to have been taught, bool [n]."""
        return self.probability_known() < self.threshold

    def ranked(self, top: int = 1) -> tuple[Answer, ...]:
        """Give one answer for each image, with its `top` most probable classes."""
        best = self.probabilities.topk(min(top, len(self.labels)), 1)
        known = [None] * len(best.values) if self.known is None else self.known.tolist()
        unknown = [None] * len(best.values) if self.known is None else self.rejected().tolist()
        answers = []
        for row, (columns, shares) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True)):
            if row in self.faults:
                answers.append(Answer((), None, None, str(self.faults[row])))
                continue
            ranked = (Ranked(self.labels[column], share) for column, share in zip(columns, shares, strict=True))
            answers.append(Answer(tuple(ranked), known[row], unknown[row]))
        return tuple(answers)


@final
@dataclass(frozen=True)
class Neighbour:
    """A class near to another one, and the cosine between their vectors."""

    label: Label
    cosine: float


@final
@dataclass(frozen=True)
class TaughtClass:
    """A class that a session taught."""

    label: Label
    images: int
    updated: bool  # whether it was known before
    recognised: int  # how many of the images the model now gives to this class
    nearest: tuple[Neighbour, ...]  # the classes it may be confused with, nearest first


@final
@dataclass(frozen=True)
class Taught:
    """A session that was taught."""

    session: SessionRecord
    classes: tuple[TaughtClass, ...]


@final
@dataclass(frozen=True)
class KnownClass:
    """A class that a model knows."""

    label: Label
    images: int
    base: bool  # whether the base session taught it
    session: int  # that taught it first
    nearest: Neighbour | None  # None where it is the only class


@final
@dataclass(frozen=True)
class ModelCard:
    """What a model is, what it knows, and how it came to know it."""

    backbone: str | None  # None: it takes activations
    image_side: int | None
    features: int
    embedding: str
    concepts: int
    temperature: float
    aim: str | None  # what the balance was chosen for; None: it was not chosen
    balance: float  # its strength
    unknown_auroc: float | None  # of telling base images from those of classes left out; None: it cannot tell
    memory_bytes: int
    bytes_per_class: int
    classes: tuple[KnownClass, ...]
    sessions: tuple[SessionRecord, ...]
    log: tuple[Event, ...]


@final
@dataclass(frozen=True)
class ClassResult:
    """How well one class was recognised."""

    label: Label
    images: int
    accuracy: float
    taken_for: Label | None  # the most frequent wrong answer


@final
@dataclass(frozen=True)
class NeverTaught:
    """What a model made of images of classes it was never taught; None where it cannot tell, or there are none."""

    classes: tuple[Label, ...]
    images: int
    called_unknown: float | None
    taught_called_unknown: float | None
    auroc: float | None


@final
@dataclass(frozen=True)
class Evaluation:
    """How well a model knows old (base) and new classes; shares between 0 and 1, None where nothing was counted."""

    images: int
    classes: int
    accuracy: float | None
    old: float | None
    new: float | None
    harmonic_mean: float | None
    never_taught: NeverTaught
    untested: tuple[Label, ...]
    per_class: tuple[ClassResult, ...]  # worst first


def neighbours(memory: ClassRows, label: Label, count: int) -> tuple[Neighbour, ...]:
    """Give the classes whose vectors have the largest cosine to that of a class."""
    row = memory.labels.index(label)
    cosines = memory.vectors @ memory.vectors[row]
    cosines[row] = -torch.inf
    nearest = cosines.topk(min(count, len(cosines) - 1))
    pairs = zip(nearest.indices.tolist(), nearest.values.tolist(), strict=True)
    return tuple(Neighbour(memory.labels[other], cosine) for other, cosine in pairs)


def known_classes(memory: ClassRows, sessions: Sequence[SessionRecord]) -> tuple[KnownClass, ...]:
    """Describe every class."""
    first = {label: record.number for record in reversed(sessions) for label in record.classes}
    cosines, nearest = (memory.vectors @ memory.vectors.T).fill_diagonal_(-torch.inf).max(1)
    alone = len(memory.labels) == 1
    pairs = [
        None if alone else Neighbour(memory.labels[int(row)], float(c)) for row, c in zip(nearest, cosines, strict=True)
    ]
    rows = zip(memory.labels, memory.counts.tolist(), memory.base.tolist(), pairs, strict=True)
    return tuple(KnownClass(label, images, base, first[label], nearest=near) for label, images, base, near in rows)


def evaluate(memory: ClassRows, answers: Answers, labels: Sequence[Label]) -> Evaluation:
    """Compare answers with labels, some of which may be of classes that were never taught."""
    base = {label for label, old in zip(memory.labels, memory.base.tolist(), strict=True) if old}
    taught = set(memory.labels)
    by_class: dict[Label, list[Label]] = {}
    for truth, column in zip(labels, answers.probabilities.argmax(1).tolist(), strict=True):
        if truth in taught:
            by_class.setdefault(truth, []).append(memory.labels[column])
    right = [(truth in base, truth == answer) for truth, given in by_class.items() for answer in given]
    old = _share([hit for of_base, hit in right if of_base])
    new = _share([hit for of_base, hit in right if not of_base])
    results = (_class_result(label, given) for label, given in by_class.items())
    return Evaluation(
        images=len(right),
        classes=len(by_class),
        accuracy=_share([hit for _, hit in right]),
        old=old,
        new=new,
        harmonic_mean=None if old is None or new is None else harmonic_mean(old, new),
        never_taught=_never_taught(answers, labels, taught),
        untested=tuple(label for label in memory.labels if label not in by_class),
        per_class=tuple(sorted(results, key=lambda result: result.accuracy)),
    )


def _never_taught(answers: Answers, labels: Sequence[Label], taught: set[Label]) -> NeverTaught:
    classes = tuple(sorted(set(labels) - taught))
    seen = torch.tensor([label in taught for label in labels], dtype=torch.bool)
    if answers.known is None:
        return NeverTaught(classes, int((~seen).sum()), called_unknown=None, taught_called_unknown=None, auroc=None)
    rejected, known = answers.rejected(), answers.known
    return NeverTaught(
        classes,
        int((~seen).sum()),
        called_unknown=_share(rejected[~seen].tolist()),
        taught_called_unknown=_share(rejected[seen].tolist()),
        auroc=auroc(known[seen], known[~seen]) if classes else None,
    )


def _class_result(label: Label, given: list[Label]) -> ClassResult:
    wrong = [answer for answer in given if answer != label]
    taken_for = max(sorted(set(wrong)), key=wrong.count) if wrong else None
    return ClassResult(label, len(given), 1 - len(wrong) / len(given), taken_for)


def _share(right: list[bool]) -> float | None:
    return sum(right) / len(right) if right else None

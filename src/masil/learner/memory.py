"""All that is kept of the past: per class a mean embedding, an induced vector, a class vector and a count (Eq. mem)."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self, final

import torch
from torch import Tensor
from torch.nn import functional

from masil.learner.labels import Label

ROWS = ("counts", "means", "induced", "vectors", "expected")  # what is kept of each class


@final
@dataclass(frozen=True)
class SessionRecord:
    """Who taught what, when, from how many images. Session 0 is the base session."""

    number: int
    when: str  # UTC, ISO 8601
    who: str
    images: tuple[tuple[Label, int], ...]  # each class and how many images of it
    note: str = ""

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes that the session taught, or taught more about."""
        return tuple(label for label, _ in self.images)


@final
@dataclass(frozen=True)
class Event:
    """A line of the log that only grows: a session was taught or undone, or a class forgotten."""

    what: str  # "taught", "undone", "forgotten"
    when: str
    who: str
    session: int | None
    images: tuple[tuple[Label, int], ...]
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class Lesson:
    """What one session left behind, one row for each of its k classes."""

    number: int
    when: str
    who: str
    note: str
    labels: tuple[Label, ...]
    counts: Tensor  # int64 [k], images in this session
    means: Tensor  # [k d], of their embeddings
    induced: Tensor  # [k d], mean embedding of their reconstructions; the mean itself for base classes
    vectors: Tensor  # [k d], unit length, once this session was over
    expected: Tensor  # [k], the score that an image of the class is expected to get from it

    @property
    def record(self) -> SessionRecord:
        """The session without its numbers."""
        images = tuple(zip(self.labels, self.counts.tolist(), strict=True))
        return SessionRecord(self.number, self.when, self.who, images, self.note)

    def without(self, label: Label) -> Self:
        """Give the session as if it had not taught this class."""
        keep = [row for row, own in enumerate(self.labels) if own != label]
        return type(self)(
            self.number, self.when, self.who, self.note, tuple(self.labels[row] for row in keep),
            self.counts[keep], self.means[keep], self.induced[keep], self.vectors[keep], self.expected[keep],
        )  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Memory:
    """The k classes known, in the order in which they were taught. No image, and no feature of one image, is in it."""

    labels: tuple[Label, ...]
    counts: Tensor  # int64 [k], images seen
    means: Tensor  # [k d]
    induced: Tensor  # [k d]
    vectors: Tensor  # [k d], unit length
    expected: Tensor  # [k]
    base: Tensor  # bool [k], taught by the base session

    @property
    def nbytes(self) -> int:
        """Bytes that the memory takes."""
        kept = (self.counts, self.means, self.induced, self.vectors, self.expected, self.base)
        return sum(x.nbytes for x in kept)

    @property
    def bytes_per_class(self) -> int:
        """Bytes that each further class adds."""
        return self.nbytes // len(self.labels)

    @staticmethod
    def of(lessons: Iterable[Lesson]) -> Memory:
        """Go through sessions from the first, the base session, to the last."""
        first, *later = lessons
        place = {label: row for row, label in enumerate(first.labels)}
        rows = {name: list(getattr(first, name)) for name in ROWS}
        for lesson in later:
            known, new = _split(lesson, place)
            at = [place[lesson.labels[row]] for row in known]
            if known:
                merged = _merged({name: torch.stack([rows[name][i] for i in at]) for name in ROWS}, lesson, known)
            for name in ROWS:
                for i, row in enumerate(at):
                    rows[name][row] = merged[name][i]
                rows[name] += [getattr(lesson, name)[row] for row in new]
            place |= {lesson.labels[row]: len(place) + i for i, row in enumerate(new)}
        base = torch.arange(len(place)) < len(first.labels)
        stacked = {name: torch.stack(found) if found else getattr(first, name) for name, found in rows.items()}
        return Memory(tuple(place), **stacked, base=base)

    def after(self, lesson: Lesson) -> Memory:
        """Give the memory once a session is over: new classes appended, known ones averaged with what is new."""
        place = {label: row for row, label in enumerate(self.labels)}
        known, new = _split(lesson, place)
        at = [place[lesson.labels[row]] for row in known]
        merged = _merged({name: getattr(self, name)[at] for name in ROWS}, lesson, known)
        grown = {name: torch.cat([getattr(self, name), getattr(lesson, name)[new]]) for name in ROWS}
        for name in ROWS:
            grown[name][at] = merged[name]
        base = torch.cat([self.base, torch.zeros(len(new), dtype=torch.bool)])
        return Memory((*self.labels, *(lesson.labels[row] for row in new)), **grown, base=base)


def _split(lesson: Lesson, place: Mapping[Label, int]) -> tuple[list[int], list[int]]:
    """Give the lesson's rows of classes that are known, and of new ones."""
    known = [row for row, label in enumerate(lesson.labels) if label in place]
    return known, [row for row, label in enumerate(lesson.labels) if label not in place]


def _merged(old: Mapping[str, Tensor], lesson: Lesson, rows: list[int]) -> dict[str, Tensor]:
    """Give what is known of classes once these rows of a lesson are added."""
    n, m = old["counts"], lesson.counts[rows]
    return {
        "counts": n + m,
        "means": running(old["means"], n, lesson.means[rows], m),
        "induced": running(old["induced"], n, lesson.induced[rows], m),
        "vectors": lesson.vectors[rows],
        "expected": torch.lerp(old["expected"], lesson.expected[rows], m / (n + m)),
    }


def running(old: Tensor, n: Tensor, new: Tensor, m: Tensor) -> Tensor:
    """Give the mean of n + m rows from the means of n and of m: (n·old + m·new)/(n + m)."""
    share = (m / (n + m))[:, None]
    return torch.lerp(old, new, share)  # exactly `new` where n = 0


def unit(vectors: Tensor) -> Tensor:
    """Scale to unit length; zero stays zero."""
    return functional.normalize(vectors)


def now() -> str:
    """Give the time as it is logged."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def account(taught_by: str | None) -> str:
    """Give the teacher's name, by default that of the account."""
    if taught_by is not None:
        return taught_by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an account
        return "unknown"

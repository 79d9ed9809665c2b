"""The images of a session, all that is kept of its classes (Eq. mem), and who taught what, when.

Of a class are kept its number of images, three vectors, and the score its images get.
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from masil.learner.inputs import Label

Counts = tuple[tuple[Label, int], ...]  # each class and how many images of it
ROWS = ("counts", "means", "induced", "vectors", "own_scores")  # what is kept of each class, and saved


@final
@dataclass(frozen=True, eq=False)
class Shots:
    """The labelled images of one session."""

    x: Tensor  # [n d], activations to the power p
    codes: Tensor  # int64 [n], the position of each image's class among `labels`
    labels: tuple[Label, ...]

    @property
    def counts(self) -> Tensor:
        """How many images each class has, int64 [k]."""
        return torch.bincount(self.codes, minlength=len(self.labels))


@final
@dataclass(frozen=True, eq=False)
class ClassRows:
    """One row for each of k classes: those of one session, or all that are known, in the order they were taught.

    No image, and no feature of one image, is in it.
    """

    labels: tuple[Label, ...]
    counts: Tensor  # int64 [k], images seen
    means: Tensor  # [k d], mean embeddings
    induced: Tensor  # [k d], mean embedding of reconstructions (Eq. weights); the mean itself for base classes
    vectors: Tensor  # [k d], unit length: what images are compared with
    own_scores: Tensor  # [k], the mean cosine that images of a class, not used to make its vector, have to it
    base: Tensor  # bool [k], taught by the base session

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        return sum(getattr(self, name).nbytes for name in (*ROWS, "base"))

    @property
    def bytes_per_class(self) -> int:
        """Bytes that each further class adds."""
        return self.nbytes // len(self.labels)

    def subset(self, keep: list[int]) -> ClassRows:
        """Give some of the rows."""
        kept = {name: getattr(self, name)[keep] for name in (*ROWS, "base")}
        return ClassRows(tuple(self.labels[row] for row in keep), **kept)

    def updated(self, session: ClassRows) -> ClassRows:
        """Give the rows once a session is over: known classes averaged with what is new, new classes appended."""
        row_of = {label: row for row, label in enumerate(self.labels)}
        known = [row for row, label in enumerate(session.labels) if label in row_of]
        new = session.subset([row for row, label in enumerate(session.labels) if label not in row_of])
        more = session.subset(known)
        rows = [row_of[label] for label in more.labels]
        old = self.subset(rows)
        share = more.counts / (old.counts + more.counts)
        merged = {
            "counts": old.counts + more.counts,
            "means": running_mean(old.means, old.counts, more.means, more.counts),
            "induced": running_mean(old.induced, old.counts, more.induced, more.counts),
            "vectors": more.vectors,
            "own_scores": torch.lerp(old.own_scores, more.own_scores, share),
        }
        grown = {name: torch.cat([getattr(self, name), getattr(new, name)]) for name in (*ROWS, "base")}
        for name, values in merged.items():
            grown[name][rows] = values
        return replace(self, labels=(*self.labels, *new.labels), **grown)


def running_mean(old: Tensor, n: Tensor, new: Tensor, m: Tensor) -> Tensor:
    """Give the mean of n + m rows from the means of n and of m: (n·old + m·new)/(n + m)."""
    share = (m / (n + m))[:, None]
    return torch.lerp(old, new, share)  # exactly `new` where n = 0


def unit(vectors: Tensor) -> Tensor:
    """Scale to unit length; zero stays zero."""
    return functional.normalize(vectors)


def take_power(activations: Tensor, power: float) -> Tensor:
    """Give a^p for a >= 0, with the gradient 0 instead of infinite where a = 0."""
    if power == 1:
        return activations
    positive = activations > 0
    return torch.where(positive, torch.where(positive, activations, 1).pow(power), 0)


@final
@dataclass(frozen=True)
class SessionRecord:
    """Who taught what, when, from how many images. Session 0 is the base session."""

    number: int
    when: str  # UTC, ISO 8601
    who: str
    images: Counts
    note: str = ""

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes that the session taught, or taught more about."""
        return tuple(label for label, _ in self.images)


@final
@dataclass(frozen=True)
class Event:
    """A line of the log: a session was taught or undone, or a class forgotten."""

    what: str  # "taught", "undone", "forgotten"
    when: str
    who: str
    session: int | None
    images: Counts
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class SessionRows:
    """What one session taught: its record and a row for each of its classes."""

    number: int
    when: str
    who: str
    note: str
    rows: ClassRows

    @property
    def record(self) -> SessionRecord:
        """The session without its tensors."""
        images = tuple(zip(self.rows.labels, self.rows.counts.tolist(), strict=True))
        return SessionRecord(self.number, self.when, self.who, images, note=self.note)

    def without(self, label: Label) -> SessionRows:
        """Give the session as if it had not taught this class."""
        keep = [row for row, name in enumerate(self.rows.labels) if name != label]
        return replace(self, rows=self.rows.subset(keep))


def replay(sessions: tuple[SessionRows, ...]) -> ClassRows:
    """Give what is known after these sessions, the base session first."""
    return reduce(ClassRows.updated, (session.rows for session in sessions))


def now() -> str:
    """Give the time as it is logged."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def teacher_name(taught_by: str | None) -> str:
    """Give the teacher's name, by default that of the account."""
    if taught_by is not None:
        return taught_by
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an account
        return "unknown"

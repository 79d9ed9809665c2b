"""Who taught what, when: the sessions that are in force, and a log that only grows."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import final

from masil.learner.inputs import Label
from masil.learner.rows import ClassRows

Counts = tuple[tuple[Label, int], ...]  # each class and how many images of it


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
        return SessionRecord(self.number, self.when, self.who, images, self.note)

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

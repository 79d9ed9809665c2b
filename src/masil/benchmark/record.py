"""What a run leaves behind: one method on one protocol over draws of the shots, and its figures over these draws.

Accuracies are in per cent, as in the literature's tables; times in seconds; memory in bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, final

from masil.benchmark.play import SessionResult
from masil.benchmark.provenance import Stamp
from masil.protocol import Protocol, Spread, mean_and_interval, summarise


@final
@dataclass(frozen=True)
class SessionRow:
    """One session of one draw. `novel` and `harmonic_mean` are None in the base session."""

    session: int
    classes: int
    accuracy: float
    base: float
    novel: float | None
    harmonic_mean: float | None
    learn_seconds: float
    predict_seconds: float


@final
@dataclass(frozen=True)
class DrawRecord:
    """All sessions with one choice of shots; `draw` None is the field's standard lists.

    `confusion` counts the last session's test images by the sessions that taught their true (row) and predicted class.
    """

    draw: int | None
    sessions: tuple[SessionRow, ...]
    average: float
    performance_drop: float
    generalised: float
    stamp: Stamp
    confusion: tuple[tuple[int, ...], ...] = ()
    shots: str = ""  # sha256 of the images and labels that were taught; "" in files that do not name them


@final
@dataclass(frozen=True)
class RunRecord:
    """One method in one setting: a view over its cells, which all follow from the same values but for the shots.

    In JSON, `sessions` holds the means over the draws and, where there are several, their deviations; the standard
    shots are in no mean with others. `extras` is for what a figure needs and a table does not, by name.
    """

    method: str
    protocol: str
    dataset: str
    way: int
    shot: int
    base_classes: int
    backbone: str
    weights: str  # "imagenet", or the backbone's checksum
    recipe: str | None  # of the base session, if one was trained
    parameters: dict[str, Any]  # all that were in force, defaults too; {} in files of version 1
    given: dict[str, Any]  # those among them that somebody chose
    draws: tuple[DrawRecord, ...]
    seed: int
    weights_checksum: str
    data_checksum: str
    code: str  # checksum of the source that played it; "" in files of version 1, which did not note it
    own_code: str | None = None  # checksum of the method's file, where that is not masil's
    views: int = 1  # over how many looks at an image (itself, mirrored, moved) its activations are averaged
    asked: tuple[int | None, ...] = ()  # draws; those that are not in `draws` are missing
    failed: dict[str, str] = field(default_factory=dict)  # draw -> why it is missing
    without: str | None = None  # recipe of the backbones, trained without what plays novel, that choices were made on
    waiting: str | None = None  # why a record that cannot be traced is shown until it is played again
    extras: dict[str, Any] = field(default_factory=dict)
    source: Path | None = field(default=None, compare=False)  # the file that it was read from; not written

    def over_draws(self, name: str, session: int = -1) -> Spread | None:
        """Give mean, deviation (n − 1) and 95 % interval of a `figure` over draws; None where a draw has none."""
        values = [figure(draw, name, session) for draw in comparable(self.draws)]
        known = [value for value in values if value is not None]
        return mean_and_interval(known) if known and len(known) == len(values) else None

    def stamped(self, name: str) -> list[Any]:
        """Give the different values that the draws' stamps have under a name, in their order."""
        values = [getattr(draw.stamp, name) for draw in self.draws]
        return [value for index, value in enumerate(values) if value not in values[:index]]

    @property
    def missing(self) -> tuple[int | None, ...]:
        """The draws that were asked for and are not there."""
        there = {draw.draw for draw in self.draws}
        return tuple(draw for draw in self.asked if draw not in there)

    @property
    def started(self) -> str:
        """When the first draw was begun."""
        return min(self.stamped("started"), default="")

    @property
    def seconds(self) -> float:
        """The time of all draws together."""
        return sum(draw.stamp.seconds for draw in self.draws)

    @property
    def model_bytes(self) -> int:
        """What the method keeps, the largest over the draws."""
        return max(self.stamped("model_bytes"), default=0)


def draw_record(protocol: Protocol, draw: int | None, played: Sequence[SessionResult], stamp: Stamp) -> DrawRecord:
    """Sum up the sessions of one draw, in per cent."""

    def row(result: SessionResult) -> SessionRow:
        score = result.score
        return SessionRow(
            session=score.session,
            classes=protocol.seen(score.session).stop,
            accuracy=100 * score.accuracy,
            base=100 * score.base,
            novel=None if score.novel is None else 100 * score.novel,
            harmonic_mean=None if score.harmonic_mean is None else 100 * score.harmonic_mean,
            learn_seconds=result.learn_seconds,
            predict_seconds=result.predict_seconds,
        )

    total = summarise(protocol, [session.score for session in played])
    return DrawRecord(
        draw=draw,
        sessions=tuple(map(row, played)),
        average=100 * total.average,
        performance_drop=100 * total.performance_drop,
        generalised=100 * total.generalised,
        stamp=stamp,
        confusion=tuple(map(tuple, played[-1].confusion.tolist())),
    )


DIVERGED = "diverged, so played at a lower rate"  # what methods that descend a loss remark: descent -> rate


def comparable(draws: Sequence[DrawRecord]) -> Sequence[DrawRecord]:
    """Give the draws that a mean is taken over: those of random shots, else the standard one, never both."""
    return [draw for draw in draws if draw.draw is not None] or draws


OF_A_DRAW = ("average", "performance_drop", "generalised")


def figure(draw: DrawRecord, name: str, session: int = -1) -> float | None:
    """Give one figure of a draw: of the draw as a whole (`OF_A_DRAW`), else of a session, the last if none is named.

    Seconds of learning are those of all sessions together.
    """
    if name == "learn_seconds":
        return sum(row.learn_seconds for row in draw.sessions)
    value: float | None = getattr(draw if name in OF_A_DRAW else draw.sessions[session], name)
    return value


def paired_differences(
    ours: RunRecord, theirs: RunRecord, name: str = "accuracy", session: int = -1
) -> tuple[float, ...]:
    """Give by how much one run is ahead of another in a `figure`, for each draw that both have.

    A draw has the same shots for every method, so its luck is in both and drops out of the difference. There are none
    where the runs differ in protocol or data.
    """
    if (ours.protocol, ours.data_checksum) != (theirs.protocol, theirs.data_checksum):
        return ()
    rivals = {draw.draw: figure(draw, name, session) for draw in theirs.draws}
    pairs = [(figure(draw, name, session), rivals[draw.draw]) for draw in ours.draws if draw.draw in rivals]
    return tuple(our - their for our, their in pairs if our is not None and their is not None)


def mean_sessions(draws: Sequence[DrawRecord]) -> list[dict[str, Any]]:
    """Give each session's means over the draws; of several draws, the deviations (n − 1) too, as `accuracy_std` etc."""
    means = []
    for rows in zip(*(draw.sessions for draw in comparable(draws)), strict=True):
        mean: dict[str, Any] = {"session": rows[0].session, "classes": rows[0].classes}
        for name in (column.name for column in fields(SessionRow) if column.name not in mean):
            mean |= _named(name, [getattr(row, name) for row in rows], deviation=not name.endswith("_seconds"))
        means.append(mean)
    return means


def summary(draws: Sequence[DrawRecord]) -> dict[str, Any]:
    """Give a run's headline figures over the draws: `last` is the last session's accuracy."""
    draws = comparable(draws)
    names = {"last": "accuracy", "harmonic_mean": "harmonic_mean", **{name: name for name in OF_A_DRAW}}
    total: dict[str, Any] = {"draws": len(draws)}
    for title, name in names.items():
        total |= _named(title, [figure(draw, name) for draw in draws])
    return total


def _named(name: str, values: Sequence[float | None], deviation: bool = True) -> dict[str, float | None]:
    """Give the mean of one figure and, of several draws, its deviation; None where a draw does not have it."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return {name: None}
    total = mean_and_interval(known)
    return {name: total.mean, f"{name}_std": total.std} if deviation and total.n > 1 else {name: total.mean}

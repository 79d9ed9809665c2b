"""Which figures a set of runs allows, each with a name, a caption and words for those who cannot see it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from masil.benchmark import RunRecord
from masil.report.facts import published
from masil.report.figures_curves import Curve, Point, accuracy_by_session, accuracy_by_time, base_and_novel
from masil.report.figures_geometry import collapse_by_epoch, confusion, cosines_by_session
from masil.report.measured import confusion_of, detail_of, last, leading, name_of, series, teaching_seconds, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHED = ("MASIL", "NC-FSCIL")  # the published lines worth a comparison
KINDS = {"base": "base classes", "novel": "novel classes", "harmonic_mean": "harmonic mean"}


@final
@dataclass(frozen=True)
class Picture:
    """A figure under a file name, its caption, and its content in words."""

    name: str
    figure: Figure
    caption: str
    words: str


def pictures(protocol: str, records: Sequence[RunRecord]) -> list[Picture]:
    """Draw what the records of one protocol hold: curves always, the rest where `extras` bring the data."""
    own = sorted((r for r in records if r.protocol == protocol), key=lambda record: record.method != "masil")
    labels = _labels(own)
    found = [_accuracy(protocol, own, labels)]
    if len(own[0].draws[0].sessions) > 1:
        found.append(_balance(protocol, own, labels))
    if len(own) > 1:
        found.append(_time(protocol, own, labels))
    if places := [place for place, record in enumerate(own) if record.extras.get("cosines")]:
        with_cosines = {labels[place]: own[place].extras["cosines"] for place in places}
        found.append(
            Picture(
                f"{slug(protocol)}-cosines",
                cosines_by_session(with_cosines, places),
                "Average cosine between class means and class vectors after each session, for train and test images. "
                "Low against other classes and high against their own is what maximal separation means.",
                f"Line charts of average cosines by session for {_listed(list(with_cosines))}.",
            )
        )
    lead = leading(own)
    return found + _of_one(protocol, labels[own.index(lead)], lead)


def _accuracy(protocol: str, own: Sequence[RunRecord], labels: Sequence[str]) -> Picture:
    curves = [Curve(label, series(r, "accuracy")) for label, r in zip(labels, own, strict=True)]
    curves += [
        Curve(f"{row.method} (published)", [row.sessions], published=True)
        for row in published(protocol)
        if row.method in DASHED
    ]
    bands = " Bands are one standard deviation over draws." if any(len(r.draws) > 1 for r in own) else ""
    dashed = " Thin lines with hollow markers are published figures." if published(protocol) else ""
    return Picture(
        f"{slug(protocol)}-accuracy",
        accuracy_by_session(curves),
        f"{title_of(protocol)}: accuracy over all classes seen so far.{bands}{dashed}",
        f"Line chart of accuracy by session. {' '.join(map(_fall, curves))}",
    )


def _fall(curve: Curve) -> str:
    first, end = (sum(draw[at] or 0.0 for draw in curve.draws) / len(curve.draws) for at in (0, -1))
    return f"{curve.label}: from {first:.1f} to {end:.1f} per cent."


def _balance(protocol: str, own: Sequence[RunRecord], labels: Sequence[str]) -> Picture:
    by_kind = {
        title: [Curve(label, series(record, kind)) for label, record in zip(labels, own, strict=True)]
        for kind, title in KINDS.items()
    }
    ends = ", ".join(f"{label} {last(r, 'harmonic_mean').text()}" for label, r in zip(labels, own, strict=True))
    return Picture(
        f"{slug(protocol)}-base-novel",
        base_and_novel(by_kind),
        f"{title_of(protocol)}: what is kept of base classes, what is learnt of novel ones, and their harmonic mean.",
        f"Three line charts by session: base, novel and harmonic mean. Harmonic mean at the end: {ends}.",
    )


def _time(protocol: str, own: Sequence[RunRecord], labels: Sequence[str]) -> Picture:
    points = []
    for label, record in zip(labels, own, strict=True):
        end = last(record)
        points.append(Point(label, teaching_seconds(record).mean or 0.0, end.mean or 0.0, end.deviation or 0.0))
    said = ", ".join(f"{point.label} {point.accuracy:.1f} per cent in {point.seconds:.3g} s" for point in points)
    return Picture(
        f"{slug(protocol)}-time",
        accuracy_by_time(points),
        f"{title_of(protocol)}: accuracy after the last session against time spent in learning, activations given.",
        f"Scatter chart: {said}.",
    )


def _of_one(protocol: str, label: str, record: RunRecord) -> list[Picture]:
    """Draw what is drawn of one run only, the leading one."""
    found = []
    stem = f"{slug(protocol)}-{slug(label)}"
    if matrix := confusion_of(record):
        found.append(
            Picture(
                f"{stem}-confusion",
                confusion(matrix),
                f"{label}: where test images of each session's classes go in the end; the first column: to base ones.",
                f"Heat map of confusion between sessions; of base images "
                f"{100 * matrix[0][0] / max(sum(matrix[0]), 1):.0f} per cent stay with base classes.",
            )
        )
    if history := record.extras.get("history"):
        found.append(
            Picture(
                f"{stem}-collapse",
                collapse_by_epoch(history),
                f"{label}: neural collapse over the epochs of the base session; 0 is full collapse, for NC4 it is 1.",
                "Line charts of NC1 to NC4 by epoch.",
            )
        )
    return found


def _labels(records: Sequence[RunRecord]) -> list[str]:
    """Name each run as shortly as tells them apart: method, then backbone, then everything."""
    namings: tuple[Callable[[RunRecord], str], ...] = (
        lambda record: name_of(record.method),
        lambda record: f"{name_of(record.method)}, {record.backbone}",
        lambda record: f"{name_of(record.method)}, {detail_of(record)}",
    )
    for naming in namings:
        labels = [naming(record) for record in records]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{label} (run {number})" for number, label in enumerate(labels, 1)]


def slug(text: str) -> str:
    """Give a name that is safe as a file's and as an id."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

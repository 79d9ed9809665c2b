"""Which figures a set of runs allows, each with a name, a caption and words for those who cannot see it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, final

from masil.benchmark import RunRecord
from masil.report import figures
from masil.report.measured import (
    OURS,
    budget_of,
    grouped,
    last_accuracy,
    name_of,
    remark_on,
    setting_name,
    setting_of,
    slug,
    title_of,
)
from masil.report.order import order_figure, order_table
from masil.report.published import TABLES, published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHED = ("MASIL", "NC-FSCIL")  # the published lines worth a comparison
KINDS = {"base": "base classes", "novel": "novel classes", "harmonic_mean": "harmonic mean"}
FIGURES = ("accuracy", "base-novel", "time", "cosines", "confusion", "collapse")  # what their names end in
MOST = 9  # lines with a look of their own; more are not told apart, and their legend leaves no room for the axes


@final
@dataclass(frozen=True)
class Picture:
    """A figure of a protocol under a file name, its caption, and its content in words."""

    protocol: str
    name: str
    figure: Figure
    caption: str
    words: str


def pictures(records: Sequence[RunRecord], ours: str = OURS) -> list[Picture]:
    """Draw what the runs of each setting hold: curves always, the rest where `extras` bring the data."""
    protocols = grouped(records, lambda record: f"{record.protocol}: {setting_of(record)}")
    made = [picture for runs in protocols.values() for picture in _Setting(runs, ours).pictures()]
    return [*made, *_orders(records)]


def is_named(name: str, protocols: Iterable[str]) -> bool:
    """Say whether a file has a name that `pictures` gives to a figure of some runs of these protocols."""
    which, kinds = "|".join(re.escape(slug(protocol, "_.=")) for protocol in protocols), "|".join(FIGURES)
    return re.fullmatch(rf"({which})-.*(standard-shots|draw-\d+|\d+-draws)-(.*-)?({kinds})", name) is not None


def _orders(records: Sequence[RunRecord]) -> list[Picture]:
    """Draw how the order of methods differs from the published one, for each of the paper's protocols."""
    made = []
    for protocol in TABLES:
        if table := order_table(protocol, records):
            caption = f"{title_of(protocol)}: published order of methods and ours; far moves are coloured."
            words = "Lines from published ranks to ours. " + " ".join(f"{group.title}." for group in table.groups)
            made.append(Picture(protocol, f"{protocol}-order", order_figure(table), caption, words=words))
    return made


@final
class _Setting:
    """The runs of one setting, ours first and then by accuracy, so that each has the same look in all figures."""

    def __init__(self, runs: Sequence[RunRecord], ours: str) -> None:
        self.runs = sorted(runs, key=lambda run: (run.method != ours, -last_accuracy(run), run.method))
        self.protocol = self.runs[0].protocol
        self.labelled = list(zip(_labels(self.runs), self.runs, strict=True))

    def pictures(self) -> list[Picture]:
        """Draw what the runs allow."""
        made = [self._accuracy()]
        if len(self.runs[0].draws[0].sessions) > 1:
            made.append(self._base_and_novel())
        if len(self.runs) > 1:
            made.append(self._time())
        return [*made, *self._cosines(), *self._confusion(), *self._collapse()]

    def _picture(self, kind: str, figure: Figure, caption: str, words: str) -> Picture:
        title = ", ".join(filter(None, [title_of(self.protocol), setting_of(self.runs[0]), budget_of(self.runs)]))
        name = f"{setting_name(self.runs[0])}-{kind}"
        return Picture(self.protocol, name, figure, caption=f"{title}: {caption}", words=words)

    def _curves(self, name: str) -> list[figures.Curve]:
        curves = []
        for index, (label, run) in enumerate(self.labelled):
            values = [[getattr(row, name) for row in draw.sessions] for draw in run.draws]
            curves.append(figures.Curve(label, values, "measured" if index < MOST else "background"))
        return curves

    def _accuracy(self) -> Picture:
        rows = [row for row in published(self.protocol) if row.method in DASHED]
        curves = self._curves("accuracy")
        curves += [figures.Curve(f"{row.method} (published)", [row.sessions], "published") for row in rows]
        caption = "accuracy over all classes seen so far."
        if any(len(run.draws) > 1 for run in self.runs):
            caption += " Bands are one standard deviation over draws."
        if rows:
            caption += " Thin lines with hollow markers are published figures."
        words = ["Line chart of accuracy by session."]
        for curve in curves:
            start, end = (fmean(draw[session] or 0.0 for draw in curve.draws) for session in (0, -1))
            words.append(f"{curve.label}: from {start:.1f} to {end:.1f} per cent.")
        return self._picture("accuracy", figures.accuracy_by_session(curves), caption, " ".join(words))

    def _base_and_novel(self) -> Picture:
        ends = ((label, run.over_draws("harmonic_mean")) for label, run in self.labelled)
        words = ", ".join(f"{label} {end.mean:.2f}" for label, end in ends if end is not None)
        return self._picture(
            "base-novel",
            figures.base_and_novel({title: self._curves(name) for name, title in KINDS.items()}),
            "what is kept of base classes, what is learnt of novel ones, and their harmonic mean.",
            f"Three line charts by session: base, novel and harmonic mean. Harmonic mean at the end: {words}.",
        )

    def _time(self) -> Picture:
        points = []
        for index, (label, run) in enumerate(self.labelled):
            end, seconds = run.over_draws("accuracy"), run.over_draws("learn_seconds")
            if end is not None and seconds is not None:
                deviation = end.std if end.n > 1 else 0.0
                points.append(figures.Point(label, seconds.mean, end.mean, deviation, background=index >= MOST))
        words = ", ".join(f"{point.label} {point.accuracy:.1f} per cent in {point.seconds:.3g} s" for point in points)
        caption = "accuracy after the last session against time spent in learning, activations given."
        return self._picture("time", figures.accuracy_by_time(points), caption, f"Scatter chart: {words}.")

    def _cosines(self) -> list[Picture]:
        looks = [index for index, run in enumerate(self.runs[:MOST]) if run.extras.get("cosines")]
        if not looks:
            return []
        runs = {label: run.extras["cosines"] for label, run in (self.labelled[index] for index in looks)}
        caption = (
            "average cosine between class means and class vectors after each session, for train and test images. Low "
            "against other classes and high against their own is what maximal separation means."
        )
        words = f"Line charts of average cosines by session for {', '.join(runs)}."
        return [self._picture("cosines", figures.cosines_by_session(runs, looks), caption, words)]

    def _confusion(self) -> list[Picture]:
        """Draw the confusion of one run, ours or the most accurate, over its draws."""
        label, run = self.labelled[0]
        if not all(draw.confusion for draw in run.draws):
            return []
        rows = zip(*(draw.confusion for draw in run.draws), strict=True)
        matrix = [[sum(counts) for counts in zip(*row, strict=True)] for row in rows]
        caption = f"{label}, where test images of each session's classes go in the end; first column: to base classes."
        stay = 100 * matrix[0][0] / max(sum(matrix[0]), 1)
        words = f"Heat map of confusion between sessions; {stay:.0f} per cent of base images stay with base classes."
        return [self._picture(f"{slug(label)}-confusion", figures.confusion(matrix), caption, words)]

    def _collapse(self) -> list[Picture]:
        label, run = self.labelled[0]
        if not run.extras.get("history"):
            return []
        caption = f"{label}, neural collapse over the epochs of the base session; 0 is full collapse, for NC4 it is 1."
        figure = figures.collapse_by_epoch(run.extras["history"])
        return [self._picture(f"{slug(label)}-collapse", figure, caption, "Line charts of NC1 to NC4 by epoch.")]


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """Name each run by its method, and by more only where that does not tell them apart."""
    labels = [name_of(run.method) for run in runs]
    if len(set(labels)) < len(labels):
        labels = [", ".join(filter(None, [name_of(run.method), remark_on(run)])) for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{label} (run {number})" for number, label in enumerate(labels, 1)]
    return labels

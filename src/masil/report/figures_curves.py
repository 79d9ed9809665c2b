"""Accuracy as a curve: by session with bands over draws, old against new classes, and against the time it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from masil.report.canvas import INK, PAPER, drawn, look, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@final
@dataclass(frozen=True)
class Curve:
    """One line of per cents by draw and session; None where there is nothing to say yet. Published lines are dashed."""

    label: str
    draws: Sequence[Sequence[float | None]]
    published: bool = False


@final
@dataclass(frozen=True)
class Point:
    """What one run reached and the seconds it took, with the deviation over draws where there are several."""

    label: str
    seconds: float
    accuracy: float
    deviation: float = 0.0


@drawn
def accuracy_by_session(curves: Sequence[Curve]) -> Figure:
    """Draw accuracy over all classes seen so far, one line a run, a band of one standard deviation over draws."""
    figure, axes = panels(1, 1, (7.2, max(3.9, _room(len(curves)))))
    _lines(axes[0][0], curves)
    axes[0][0].set(xlabel="session", ylabel="accuracy over all classes so far, %")
    _legend(figure, axes[0][0], curves)
    return figure


@drawn
def base_and_novel(by_kind: Mapping[str, Sequence[Curve]]) -> Figure:
    """Draw one panel a kind of accuracy ("base", "novel", "harmonic mean") with the same lines in each."""
    lines = -(-len(next(iter(by_kind.values()))) // 3)  # of the legend below
    figure, axes = panels(1, len(by_kind), (7.2, 2.6 + _room(lines)), sharey=True, sharex=True)
    for axis, (kind, curves) in zip(axes[0], by_kind.items(), strict=True):
        _lines(axis, curves)
        axis.set(title=kind, xlabel="session")
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][0].set_ylim(bottom=0)
    curves = next(iter(by_kind.values()))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=min(3, len(curves)))
    return figure


@drawn
def accuracy_by_time(points: Sequence[Point]) -> Figure:
    """Draw accuracy after the last session against the time spent in learning, on a logarithmic axis."""
    from matplotlib.ticker import LogFormatter

    figure, axes = panels(1, 1, (7.2, max(3.6, _room(len(points)))))
    axis = axes[0][0]
    for place, point in enumerate(points):
        style = look(place) | {"linestyle": "none", "markersize": 7}
        seconds = max(point.seconds, 1e-3)
        axis.errorbar([seconds], [point.accuracy], [point.deviation], fmt="none", ecolor=style["color"])
        axis.plot([seconds], [point.accuracy], label=point.label, **style)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
    axis.grid(visible=True, axis="both")
    axis.margins(0.12)
    axis.set(xlabel="seconds of learning, all sessions of one draw", ylabel="accuracy after the last session, %")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", handlelength=1.2)
    return figure


def _lines(axis: Axes, curves: Sequence[Curve]) -> None:
    from matplotlib.ticker import MaxNLocator

    count = {True: 0, False: 0}
    for curve in curves:
        place = count[curve.published]
        count[curve.published] += 1
        values = np.array([[np.nan if v is None else v for v in draw] for draw in curve.draws], dtype=float)
        sessions = np.arange(values.shape[1])
        centre = values.mean(0)
        if curve.published:
            dashes = (0, (1, 1.4)) if place % 2 else (0, (4, 2))
            axis.plot(
                sessions, centre, label=curve.label, color=INK, linestyle=dashes, linewidth=1.1,
                marker=look(place)["marker"], markerfacecolor=PAPER, markersize=4,
            )  # fmt: skip
            continue
        style = look(place)
        if len(values) > 1:
            spread = values.std(0, ddof=1)
            axis.fill_between(sessions, centre - spread, centre + spread, color=style["color"], alpha=0.2, linewidth=0)
        axis.plot(sessions, centre, label=curve.label, **style)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _room(entries: int) -> float:
    """Give the inches that a legend of so many lines takes."""
    return 0.2 + 0.19 * entries


def _legend(figure: Figure, axis: Axes, curves: Sequence[Curve]) -> None:
    """Put the legend at the side: measured lines in the order in which they end, then published ones."""

    def place_of(index: int) -> tuple[bool, float]:
        curve = curves[index]
        return curve.published, -float(np.mean([draw[-1] or 0.0 for draw in curve.draws]))

    handles, labels = axis.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=place_of)
    figure.legend([handles[i] for i in order], [labels[i] for i in order], loc="outside right upper")

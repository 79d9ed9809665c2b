"""Figures: accuracy by session and against time, cosines to class vectors, neural collapse by epoch, confusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from masil.errors import InputError
from masil.report.style import COLOURS, FAINT, INK, PAPER, look, panels, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

Cosines = Mapping[str, Sequence[Sequence[float]]]  # "train" and "test", each by session: [own class, other classes]
COLLAPSE = {  # a panel: the history's columns and how they are called
    "NC1: variability": {"nc1": "directions", "nc1_ratio": "ratio"},
    "NC2: unequal norms": {"equinorm_means": "means", "equinorm_vectors": "class vectors"},
    "NC2: unequal angles": {"equiangular_means": "means", "equiangular_vectors": "class vectors"},
    "NC2: off the simplex": {"simplex_means": "means", "simplex_vectors": "class vectors"},
    "NC3: self-duality": {"nc3": "distance"},
    "NC4: agreement": {"nc4": "share"},
}


@final
@dataclass(frozen=True)
class Curve:
    """One line of per cents by draw and session; None where there is nothing to say yet.

    Published lines are thin and dashed. Lines in the background are grey, and share one entry of the legend.
    """

    label: str
    draws: Sequence[Sequence[float | None]]
    kind: Literal["measured", "published", "background"] = "measured"


@final
@dataclass(frozen=True)
class Point:
    """What one run reached and the seconds it took, with the deviation over draws where there are several."""

    label: str
    seconds: float
    accuracy: float
    deviation: float = 0.0
    background: bool = False


@styled()
def accuracy_by_session(curves: Sequence[Curve]) -> Figure:
    """Draw accuracy over all classes seen so far, one line a run, a band of one standard deviation over draws."""
    figure, ((axis,),) = panels(1, 1, (7.2, max(3.9, _height(curves))))
    _lines(axis, curves)
    axis.set(xlabel="session", ylabel="accuracy over all classes so far, %")
    ends = {curve.label: float(np.mean([draw[-1] or 0.0 for draw in curve.draws])) for curve in curves}
    thin = {curve.label for curve in curves if curve.kind == "published"}
    # The legend reads as the lines end: measured ones, then published ones, then those in the background.
    entries = sorted(
        zip(*axis.get_legend_handles_labels(), strict=True),
        key=lambda entry: (entry[1] not in ends, entry[1] in thin, -ends.get(entry[1], 0.0)),
    )
    figure.legend(*zip(*entries, strict=True), loc="outside right upper")
    return figure


@styled()
def base_and_novel(by_kind: Mapping[str, Sequence[Curve]]) -> Figure:
    """Draw one panel a kind of accuracy ("base", "novel", "harmonic mean") with the same lines in each."""
    curves = next(iter(by_kind.values()))
    figure, axes = panels(1, len(by_kind), (7.2, 2.6 + _height(curves[::3])), sharey=True, sharex=True)
    for axis, (kind, lines) in zip(axes[0], by_kind.items(), strict=True):
        _lines(axis, lines)
        axis.set(title=kind, xlabel="session")
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][0].set_ylim(bottom=0)
    _legend_below(figure, axes[0][0])
    return figure


@styled()
def accuracy_by_time(points: Sequence[Point]) -> Figure:
    """Draw accuracy after the last session against the time spent in learning, on a logarithmic axis."""
    from matplotlib.ticker import LogFormatter

    figure, ((axis,),) = panels(1, 1, (7.2, max(3.6, _height(points))))
    for index, point in enumerate(point for point in points if not point.background):
        style = look(index) | {"linestyle": "none", "markersize": 7}
        seconds = [max(point.seconds, 1e-3)]
        axis.errorbar(seconds, [point.accuracy], [point.deviation], fmt="none", ecolor=style["color"])
        axis.plot(seconds, [point.accuracy], label=point.label, **style)
    others = [point for point in points if point.background]
    if others:
        seconds = [max(point.seconds, 1e-3) for point in others]
        accuracies = [point.accuracy for point in others]
        axis.plot(seconds, accuracies, "o", color=FAINT, label=_others(len(others)), markersize=6, zorder=1)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
    axis.grid(visible=True, axis="both")
    axis.margins(0.12)
    axis.set(xlabel="seconds of learning, all sessions of one draw", ylabel="accuracy after the last session, %")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", handlelength=1.2)
    return figure


@styled()
def cosines_by_session(runs: Mapping[str, Cosines], looks: Sequence[int] | None = None, title: str = "") -> Figure:
    """Draw the average cosine of class means to class vectors: Avg_{k≠k'} h_k·w_k' above, and own classes below.

    `looks` gives each run the look it has in other figures.
    """
    figure, axes = panels(2, 2, (7.2, 4.4 + _height(list(runs)[::3])), sharex=True, sharey="row")
    for row, (which, name) in enumerate(((1, "other classes"), (0, "own class"))):
        for column, split in enumerate(("train", "test")):
            axis = axes[row][column]
            for index, (label, cosines) in zip(looks or range(len(runs)), runs.items(), strict=True):
                values = [pair[which] for pair in cosines.get(split, ())]
                axis.plot(range(len(values)), values, label=label, **look(index))
            axis.set_title(f"{split}, {name}")
            _whole_numbers(axis)
        axes[row][0].set_ylabel("average cosine")
    for axis in axes[1]:
        axis.set_xlabel("session")
    if title:
        figure.suptitle(title)
    _legend_below(figure, axes[0][0])
    return figure


@styled()
def collapse_by_epoch(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw NC1–NC4 over the epochs of a base session, from the rows of its history.json."""
    from matplotlib.ticker import LogFormatter

    rows = [row for row in history if row.get("nc1") not in (None, "")]
    if not rows:
        raise InputError("The history has no column nc1; was the base session trained without watching its collapse?")
    epochs = [float(row["epoch"]) for row in rows]
    figure, axes = panels(2, 3, (7.2, 4.4), sharex=True)
    for axis, (title, columns) in zip([*axes[0], *axes[1]], COLLAPSE.items(), strict=True):
        for index, (column, name) in enumerate(columns.items()):
            values = [float(row[column]) if row.get(column) not in (None, "") else np.nan for row in rows]
            axis.plot(epochs, values, label=name, **look(index) | {"markersize": 3})
        axis.set_title(title, fontsize=9)
        axis.margins(y=0.12)
        if len(columns) > 1:
            axis.legend(fontsize=8, handlelength=2.2)
        _whole_numbers(axis, 5)
    axes[0][0].set_yscale("log")
    axes[0][0].yaxis.set_major_formatter(LogFormatter())
    axes[0][0].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.4)))
    for axis in axes[1]:
        axis.set_xlabel("epoch")
    return figure


@styled()
def confusion(counts: ArrayLike) -> Figure:
    """Draw where test images go [s s], in per cent of each row: the session of the true class against the predicted."""
    matrix = np.asarray(counts, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"A confusion between sessions is square, but this one is {list(matrix.shape)}.")
    shares = 100 * matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    size = len(shares)
    figure, ((axis,),) = panels(1, 1, (min(7.2, 1.6 + 0.46 * size), min(6.4, 1.5 + 0.4 * size)))
    edges = np.arange(size + 1) - 0.5
    axis.pcolormesh(edges, edges, shares, cmap="Blues", vmin=0, vmax=100, edgecolors=PAPER, linewidth=0.8)
    for (row, column), share in np.ndenumerate(shares):
        colour = "#fefefe" if share > 55 else "#111111"  # fixed: the cell's own colour does not follow the page
        axis.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=8, color=colour)
    if size > 1:  # between base and novel
        axis.axhline(0.5, color=COLOURS[1], linewidth=1.2)
        axis.axvline(0.5, color=COLOURS[1], linewidth=1.2)
    names = ["base", *map(str, range(1, size))]
    axis.set_xticks(range(size), names)
    axis.set_yticks(range(size), names)
    axis.invert_yaxis()
    axis.grid(visible=False)
    axis.tick_params(length=0)
    axis.set(xlabel="session of the predicted class", ylabel="session of the true class")
    return figure


def _lines(axis: Axes, curves: Sequence[Curve]) -> None:
    """Draw curves with the looks of their kinds, those in the background last."""
    for kind in ("measured", "published", "background"):
        alike = [curve for curve in curves if curve.kind == kind]
        for index, curve in enumerate(alike):
            values = np.array(curve.draws, dtype=float)  # None becomes NaN
            sessions, centre, style = np.arange(values.shape[1]), values.mean(0), look(index) | {"label": curve.label}
            if kind == "published":
                style |= {"color": INK, "linewidth": 1.1, "markerfacecolor": PAPER, "markersize": 4}
                style["linestyle"] = (0, (1, 1.4)) if index % 2 else (0, (4, 2))
            elif kind == "background":  # matplotlib leaves a label "_" out of the legend
                label = "_" if index else _others(len(alike))
                style = {"label": label, "color": FAINT, "linewidth": 1, "zorder": 1}
            elif len(values) > 1:
                band = values.std(0, ddof=1)
                axis.fill_between(sessions, centre - band, centre + band, color=style["color"], alpha=0.2, linewidth=0)
            axis.plot(sessions, centre, **style)
    _whole_numbers(axis)


def _others(count: int) -> str:
    return f"{count} others" if count > 1 else "1 other"


def _whole_numbers(axis: Axes, most: int | Literal["auto"] = "auto") -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(most, integer=True))


def _height(entries: Sequence[object]) -> float:
    """Give the inches that a legend of so many lines takes."""
    return 0.2 + 0.19 * len(entries)


def _legend_below(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))

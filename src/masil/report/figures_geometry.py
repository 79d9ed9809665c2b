"""How classes lie: cosines to class vectors, collapse by epoch, confusion of old and new, embeddings in the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from masil.errors import InputError
from masil.report.canvas import COLOURS, PAPER, drawn, look, panels

if TYPE_CHECKING:
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


@drawn
def cosines_by_session(runs: Mapping[str, Cosines], places: Sequence[int] | None = None) -> Figure:
    """Draw the average cosine of class means to class vectors: Avg_{k≠k'} h_k·w_k' above, and own classes below.

    `places` gives each run the look it has in other figures.
    """
    from matplotlib.ticker import MaxNLocator

    figure, axes = panels(2, 2, (7.2, 4.8), sharex=True, sharey="row")
    for row, (which, name) in enumerate(((1, "other classes"), (0, "own class"))):
        for column, split in enumerate(("train", "test")):
            axis = axes[row][column]
            for place, (label, cosines) in zip(places or range(len(runs)), runs.items(), strict=True):
                values = [pair[which] for pair in cosines.get(split, ())]
                axis.plot(range(len(values)), values, label=label, **look(place))
            axis.set_title(f"{split}, {name}")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[row][0].set_ylabel("average cosine")
    for axis in axes[1]:
        axis.set_xlabel("session")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=min(3, len(runs)))
    return figure


@drawn
def collapse_by_epoch(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw NC1–NC4 over the epochs of a base session, from the rows of its history.json or history.csv."""
    from matplotlib.ticker import LogFormatter, MaxNLocator

    rows = [row for row in history if row.get("nc1") not in (None, "")]
    if not rows:
        raise InputError("The history has no column nc1; was the base session trained without watching its collapse?")
    epochs = [float(row["epoch"]) for row in rows]
    figure, axes = panels(2, 3, (7.2, 4.4), sharex=True)
    flat = [axis for line in axes for axis in line]
    for axis, (title, columns) in zip(flat, COLLAPSE.items(), strict=True):
        for place, (column, name) in enumerate(columns.items()):
            values = [float(row[column]) if row.get(column) not in (None, "") else np.nan for row in rows]
            axis.plot(epochs, values, label=name, **look(place) | {"markersize": 3})
        axis.set_title(title, fontsize=9)
        axis.margins(y=0.12)
        if len(columns) > 1:
            axis.legend(fontsize=8, handlelength=2.2)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes[0][0].set_yscale("log")
    axes[0][0].yaxis.set_major_formatter(LogFormatter())
    axes[0][0].yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.4)))
    for axis in axes[1]:
        axis.set_xlabel("epoch")
    return figure


@drawn
def confusion(counts: ArrayLike) -> Figure:
    """Draw where test images go [s s], in per cent of each row: the session of the true class against the predicted."""
    matrix = np.asarray(counts, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"A confusion between sessions is square, but this one is {list(matrix.shape)}.")
    shares = 100 * matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    size = len(shares)
    figure, axes = panels(1, 1, (min(7.2, 1.6 + 0.46 * size), min(6.4, 1.5 + 0.4 * size)))
    axis = axes[0][0]
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

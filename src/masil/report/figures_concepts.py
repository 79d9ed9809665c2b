"""What concepts look like: the crops nearest to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from masil.errors import InputError
from masil.report.canvas import drawn, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike


@drawn
def concept_gallery(crops: ArrayLike, importances: Sequence[float], names: Sequence[str] | None = None) -> Figure:
    """Draw uint8 crops [v m h w 3], a row a concept, the most important concept first."""
    pictures = np.asarray(crops)
    if pictures.ndim != 5 or pictures.shape[-1] != 3 or pictures.dtype != np.uint8:
        raise InputError(f"Crops are uint8 [v m h w 3], but these are {pictures.dtype} {list(pictures.shape)}.")
    v, m = pictures.shape[:2]
    if len(importances) != v:
        raise InputError(f"There are crops of {v} concepts but {len(importances)} importances.")
    called = names or [f"concept {number}" for number in range(v)]
    figure, axes = panels(v, m, (1.3 + 0.8 * m, 0.83 * v), gridspec_kw={"wspace": 0.0, "hspace": 0.0})
    for row, concept in enumerate(np.argsort(-np.asarray(importances, dtype=float), kind="stable")):
        for column in range(m):
            axis = axes[row][column]
            axis.imshow(pictures[concept, column], interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            axis.grid(visible=False)
        axes[row][0].set_ylabel(
            f"{called[concept]}\nimportance {importances[concept]:.3g}", rotation=0, ha="right", va="center", fontsize=8
        )
    return figure

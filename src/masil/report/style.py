"""The look of figures: one style, no global state, the same bytes for the same data. matplotlib is met here alone."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from masil.errors import InputError
from masil.storage import write_bytes
from masil.wording import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#1b1b1b", "#d4d4d4", "#ffffff"  # in a page these three follow its light or dark mode
# Okabe and Ito (2008), without the yellow that white paper swallows. Dashes and markers tell lines apart in grey print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1.5, 1.2)))
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "masil",
    "text.color": INK,
    "text.parse_math": False,  # a name may hold a $
    "xtick.color": INK,
    "ytick.color": INK,
}


def check_drawing() -> None:
    """Raise where figures cannot be drawn; worth asking before a long run whose report has some."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(missing_extra("Figures are", "report"))


@contextmanager
def styled(**further: Any) -> Iterator[None]:
    """Draw in our style inside a block or a function, whatever the user's matplotlib settings are; these stay."""
    check_drawing()
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast("Any", STYLE | further))
        yield


def panels(rows: int, columns: int, size: tuple[float, float], **settings: Any) -> tuple[Figure, list[list[Axes]]]:
    """Give a figure of `size` inches with rows × columns axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **settings).tolist()


def look(index: int) -> dict[str, Any]:
    """Give the look of a line by its index; colours come round after six lines, then dashed and with hollow markers."""
    lap, step = divmod(index, len(COLOURS))
    return {
        "color": COLOURS[step],
        "marker": MARKERS[index % len(MARKERS)],
        "markerfacecolor": PAPER if lap % 2 else COLOURS[step],
        "linestyle": DASHES[lap % len(DASHES)],
    }


def save(figure: Figure, path: Path) -> None:
    """Write a figure on white paper, as its suffix says (svg, pdf, png), without a date."""
    write_bytes(path, _rendered(figure, path.suffix.lstrip("."), facecolor=PAPER, dpi=200))


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Give a figure as an <svg> element for a page: ids of its own, the page's colours, nothing from elsewhere."""
    text = _rendered(figure, "svg", fonttype="none").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, role in ((INK, "currentColor"), (FAINT, "var(--rule)"), (PAPER, "var(--paper)")):
        text = text.replace(colour, role)
    text = re.sub(r"'DejaVu Sans'(, [^;\"]*)?", "system-ui, sans-serif", text)
    text = re.sub(r'<svg width="[^"]*" height="[^"]*"', "<svg", text, count=1)
    width = f"max-width: {7.2 * figure.get_figwidth():.1f}rem"  # so that letters are of one size in all figures
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(label)}" style="{width}"', 1).strip()


def _rendered(figure: Figure, kind: str, fonttype: str = "path", **settings: Any) -> bytes:
    undated = {"pdf": ("CreationDate", "Creator", "Producer"), "svg": ("Date", "Creator"), "png": ("Software",)}
    buffer = io.BytesIO()
    with styled(**{"svg.fonttype": fonttype}):
        figure.savefig(buffer, format=kind, metadata=dict.fromkeys(undated.get(kind, ())), **settings)
    return buffer.getvalue()

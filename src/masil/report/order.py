"""Do methods come out in the order of the paper's tables? Ranks here beside ranks there, and how well they agree.

Only the order can be compared: published figures come from other backbones and longer training, each system with its
own, ours from one that is shared. Waiting rows and rows of half a run do not take part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from masil.benchmark import RunRecord
from masil.report.measured import base_of, grouped, last_accuracy, name_of, title_of
from masil.report.published import PublishedRow, published_row
from masil.report.style import COLOURS, FAINT, INK, panels, styled
from masil.report.table import Column, Group, Row, Table, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 5  # methods of which an order says something
FAR = 5  # places; a method that moved by more needs a word
# Rows that the field's tables repeat from one code, and our method that plays it as it is there.
TABLE_CODE: Mapping[str, str] = {"iCaRL": "icarl-table", "EEIL": "eeil-table", "NCM": "lucir-table"}
AUTHORS_FORM = "published is the table code, played the authors' form"


def order_table(protocol: str, records: Iterable[RunRecord]) -> Table | None:
    """Give ranks by last accuracy, published and here, by base session; None where fewer than five are in both.

    Where several of our methods stand for one published row, the one that plays the code of the field's tables counts,
    and else the most accurate.
    """
    from scipy import stats  # here, because most reports need none of it

    columns = tuple(map(Column, ("published", "here", "places", "why")))
    groups = []
    for base, runs in grouped((run for run in records if run.protocol == protocol), base_of).items():
        pairs = _pairs(runs)
        if len(pairs) < FEWEST:
            continue
        last = [[-row.last for row, _ in pairs], [-last_accuracy(run) for _, run in pairs]]
        theirs, ours = (stats.rankdata(values).tolist() for values in last)
        rows = [_row(*pair, there, here) for pair, there, here in zip(pairs, theirs, ours, strict=True)]
        rows.sort(key=lambda row: row.values[0].mean or 0.0)
        rho = Value(float(stats.spearmanr(theirs, ours).statistic)).text()
        groups.append(Group(f"{base}: Spearman's ρ {rho} over {len(pairs)} methods", tuple(rows)))
    if not groups:
        return None
    notes = (
        "Ranks among the methods that both have, by accuracy after the last session; 1 is the best.",
        f"Places: by how many a method is further down here. More than {FAR} either way gets a word.",
    )
    return Table(f"{title_of(protocol)}: order of methods", "method", columns, tuple(groups), notes=notes)


@styled()
def order_figure(table: Table) -> Figure:
    """Draw each group as lines from published ranks to ours; those that moved far are coloured."""
    most = max(len(group.rows) for group in table.groups)
    figure, (axes,) = panels(1, len(table.groups), (4.4 * len(table.groups), 1.2 + 0.22 * most))
    for axis, group in zip(axes, table.groups, strict=True):
        for row in group.rows:
            there, here, places = (value.mean or 0.0 for value in row.values[:3])
            colour = COLOURS[places > 0] if abs(places) > FAR else FAINT
            axis.plot([0, 1], [there, here], color=colour, marker="o", zorder=2 + abs(places) / 100)
            axis.text(-0.04, there, row.label, ha="right", va="center", fontsize=7, color=INK)
            axis.text(1.04, here, row.label, ha="left", va="center", fontsize=7, color=INK)
        axis.set(xlim=(-1.1, 2.1), xticks=[0, 1], xticklabels=["published", "here"], yticks=[])
        axis.set_title(group.title, fontsize=7, wrap=True)
        axis.invert_yaxis()
        axis.grid(visible=False)
    return figure


def _pairs(runs: Sequence[RunRecord]) -> list[tuple[PublishedRow, RunRecord]]:
    """Give each published row with the one of our runs that stands for it."""
    pairs: dict[str, tuple[PublishedRow, RunRecord]] = {}
    for run in sorted(runs, key=lambda run: run.method in TABLE_CODE.values()):  # the worst comes first among others
        row = published_row(run.protocol, name_of(run.method))
        if row is not None and run.waiting is None and not run.missing:
            pairs[row.method] = row, run
    return list(pairs.values())


def _row(row: PublishedRow, run: RunRecord, there: float, here: float) -> Row:
    known = AUTHORS_FORM if TABLE_CODE.get(row.method, run.method) != run.method else "not explained"
    why = known if abs(here - there) > FAR else "–"
    places = Value(here - there, form="+.3g") if here != there else Value(words="0")
    return Row(row.method, (Value(there, form=".3g"), Value(here, form=".3g"), places, Value(words=why)))

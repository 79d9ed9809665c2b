"""The paper's tables, what was measured below what was published: by session, old and new, ablation, concepts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from masil.benchmark import RunRecord
from masil.report.facts import REMARKS, TABLES, published, published_ablation, published_concept_cosines
from masil.report.measured import (
    alike,
    average,
    by_session,
    detail_of,
    last,
    last_accuracy,
    name_of,
    over_draws,
    remark_on,
    setting_of,
    teaching_seconds,
    title_of,
)
from masil.report.table import NOT_RUN, Cell, Column, Group, Row, Table, ranked

PUBLISHED = "published (Khandelwal, 2023)"
MEASURED = "measured by masil"
ABLATION = {  # the paper's row, and the method that measures it
    "Learnable + CE": "learnable-ce",
    "NC + CE": "nc-ce",
    "NC + ETF loss": "nc-fscil",
    "NC + ETF loss + CF": "nc-etf-cf",
    "MASIL": "masil",
}
IMPROVEMENT = (
    "Relative improvement: how far MASIL is ahead after the last session, computed from the accuracies of each group."
)
SPREAD = "Mean ± standard deviation over draws of the shots."


def session_table(protocol: str, records: Iterable[RunRecord], expected: Sequence[str] = ()) -> Table:
    """Give accuracy by session, as the paper's Tables 1, 2 and 4; methods of `expected` without a run are "not run"."""
    own = [record for record in records if record.protocol == protocol]
    printed = published(protocol)
    count = max([len(row.sessions) for row in printed] + [len(record.draws[0].sessions) for record in own] + [1])
    columns = (
        *(Column(str(session), "session", rank=True) for session in range(count)),
        Column("average", rank=True),
        Column("relative improvement"),
    )
    groups = []
    if printed:
        best = printed[-1]  # MASIL itself
        rows = [
            Row(
                row.method,
                (
                    *map(Cell, row.sessions),
                    Cell(row.average),
                    Cell(None if row is best else best.last - row.last, form="+.2f"),
                ),
            )
            for row in printed
        ]
        groups.append(Group(PUBLISHED, ranked(columns, rows)))
    groups += [
        Group(_measured(setting), ranked(columns, _by_session(runs, count))) for setting, runs in alike(own).items()
    ]
    ran = {record.method for record in own}
    absent = [Row(name_of(method)) for method in sorted(expected) if method not in ran]
    if absent or not own:
        groups.append(Group(MEASURED, tuple(absent if own else [Row("every method")])))
    notes = [IMPROVEMENT, *REMARKS.get(protocol, ())]
    if any(len(record.draws) > 1 for record in own):
        notes.insert(0, SPREAD)
    return Table(f"{title_of(protocol)}: accuracy by session, %", "method", columns, tuple(groups), tuple(notes))


def _measured(setting: str) -> str:
    return f"{MEASURED}: {setting}"


def _by_session(records: Sequence[RunRecord], count: int) -> list[Row]:
    """Give the runs, worst first as in the paper."""
    rows = []
    for record in records:
        cells = by_session(record)
        padding = (Cell(missing=NOT_RUN),) * (count - len(cells))
        improvement = relative_improvement(record, records)
        rows.append(Row(name_of(record.method), (*cells, *padding, average(record), improvement), remark_on(record)))
    return rows


def relative_improvement(record: RunRecord, records: Iterable[RunRecord]) -> Cell:
    """Give how far the MASIL among these runs is ahead: the one with the same weights, if there is such."""
    if record.method == "masil":
        return Cell()
    rivals = [rival for rival in records if rival.method == "masil"]
    rivals.sort(key=lambda rival: (rival.weights != record.weights, rival.weights, rival.started))
    return Cell(last_accuracy(rivals[0]) - last_accuracy(record), form="+.2f") if rivals else Cell()


def balance_table(protocol: str, records: Iterable[RunRecord]) -> Table:
    """Give what one accuracy hides, after the last session: old against new classes, and what it cost."""
    columns = (
        Column("base", "after the last session, %", rank=True),
        Column("novel", "after the last session, %", rank=True),
        Column("harmonic mean", "after the last session, %", rank=True),
        Column("performance drop"),
        Column("gAcc", rank=True),
        Column("teaching, s"),
        Column("kept, MB"),
    )
    own = [record for record in records if record.protocol == protocol]
    groups = [
        Group(_measured(setting), ranked(columns, [_balance(record) for record in runs]))
        for setting, runs in alike(own).items()
    ]
    notes = (
        "Performance drop: first accuracy − last. gAcc: generalised accuracy (Tang et al., 2024).",
        "Teaching: all sessions of one draw, without the making of activations. Kept: what the method remembers.",
    )
    groups = groups or [Group(MEASURED, (Row("every method"),))]
    return Table(f"{title_of(protocol)}: old and new classes, and cost", "method", columns, tuple(groups), notes)


def _balance(record: RunRecord) -> Row:
    cells = (
        *(last(record, name) for name in ("base", "novel", "harmonic_mean")),
        over_draws([draw.performance_drop for draw in record.draws]),
        over_draws([draw.generalised for draw in record.draws]),
        teaching_seconds(record),
        Cell(record.model_bytes / 1e6),
    )
    return Row(name_of(record.method), cells, remark_on(record))


def ablation_table(records: Iterable[RunRecord]) -> Table:
    """Give the paper's ablation (Table 3): five models, three data sets, last accuracy and average."""
    columns = tuple(Column(name, title_of(protocol), True) for protocol in TABLES for name in ("final", "average"))
    rows = [
        Row(model, tuple(Cell(value) for protocol in TABLES for value in figures[protocol]))
        for model, figures in published_ablation().items()
    ]
    own = [record for record in records if record.method in ABLATION.values() and record.protocol in TABLES]
    groups = [Group(PUBLISHED, ranked(columns, rows))]
    for setting, runs in alike(own).items():
        newest = {
            (record.method, record.protocol): record for record in sorted(runs, key=lambda record: record.started)
        }
        measured = [
            Row(model, tuple(cell for name in TABLES for cell in _ablated(newest.get((method, name)))))
            for model, method in ABLATION.items()
        ]
        groups.append(Group(_measured(setting), ranked(columns, measured)))
    if not own:
        groups.append(Group(MEASURED, tuple(Row(model) for model in ABLATION)))
    notes = list(REMARKS["ablation"])
    if any(len(record.draws) > 1 for record in own):
        notes.insert(0, SPREAD)
    if len({(r.method, r.protocol, setting_of(r)) for r in own}) < len(own):
        notes.append("Where a model was run several times in one setting, the newest run is shown.")
    return Table(
        "Ablation: accuracy after the last session, and average, %", "model", columns, tuple(groups), tuple(notes)
    )


def _ablated(record: RunRecord | None) -> tuple[Cell, Cell]:
    if record is None:
        return Cell(missing=NOT_RUN), Cell(missing=NOT_RUN)
    return last(record), average(record)


def concept_table(records: Iterable[RunRecord]) -> Table:
    """Give the average cosine between concepts as published, and plain and centred as measured.

    A record brings its own as `extras["concept_cosine"] = {"plain": …, "centred": …}`.
    """
    stated = tuple(
        Row(title_of(name), (Cell(value, form=".2e"),)) for name, value in published_concept_cosines().items()
    )
    measured = tuple(
        Row(f"{title_of(record.protocol)}, {kind}", (Cell(float(value), form=".2e"),), detail_of(record))
        for record in records
        for kind, value in sorted(record.extras.get("concept_cosine", {}).items())
    )
    groups = (Group(PUBLISHED, stated), Group(MEASURED, measured or (Row("every data set"),)))
    return Table("Average cosine between concepts", "data set", (Column("cosine"),), groups, REMARKS["concept_cosine"])

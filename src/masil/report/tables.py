"""The paper's tables, what was measured below what was published: by session, old and new, ablation, concepts."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from masil.benchmark import PARTS, RunRecord
from masil.report.leaderboard import SPREAD
from masil.report.measured import (
    OURS,
    detail_of,
    grouped,
    last_accuracy,
    name_of,
    remark_on,
    setting_of,
    title_of,
    waiting_note,
)
from masil.report.published import REMARKS, TABLES, published, published_ablation, published_concept_cosines
from masil.report.table import NOT_RUN, Column, Group, Row, Table, Value, ranked

Runs = Mapping[tuple[str, str], RunRecord]  # by method and protocol
PUBLISHED = "published (Khandelwal, 2023)"
MEASURED = "measured by masil"
# The rows of the ablation, and the method that measures each; the paper names NC-FSCIL's after its loss.
ABLATION = {{"nc-fscil": "NC + ETF loss"}.get(method, name_of(method)): method for method in PARTS["ablation"][1]}


def session_table(protocol: str, records: Iterable[RunRecord], ours: str = OURS) -> Table:
    """Give accuracy by session, as the paper's Tables 1, 2 and 4."""
    runs = [record for record in records if record.protocol == protocol]
    printed = published(protocol)
    count = max([len(row.sessions) for row in printed] + [len(record.draws[0].sessions) for record in runs] + [1])
    columns = (
        *(Column(str(session), "session", rank=True) for session in range(count)),
        Column("average", rank=True),
        Column("relative improvement"),
    )

    def row(record: RunRecord, rivals: Sequence[RunRecord]) -> Row:
        there = len(record.draws[0].sessions)
        values = [Value.of(record.over_draws("accuracy", session)) for session in range(there)]
        values += [Value(words=NOT_RUN)] * (count - there)
        values += [Value.of(record.over_draws("average")), _improvement(record, rivals, ours)]
        return Row(name_of(record.method), tuple(values), remark_on(record))

    groups = _measured(runs, columns, row)
    if printed:
        best = printed[-1]  # MASIL itself
        rows = []
        for one in printed:
            behind = Value(None if one is best else best.last - one.last, form="+.2f")
            rows.append(Row(one.method, (*map(Value, one.sessions), Value(one.average), behind)))
        groups.insert(0, Group(PUBLISHED, ranked(columns, rows)))
    notes = [
        *[SPREAD] * any(len(record.draws) > 1 for record in runs),
        f"Relative improvement: how far {name_of(ours)} of the same group is ahead after the last session.",
        *REMARKS.get(protocol, ()),
        *waiting_note(runs),
    ]
    return Table(f"{title_of(protocol)}: accuracy by session, %", "method", columns, tuple(groups), notes=tuple(notes))


def _measured(
    records: Sequence[RunRecord], columns: Sequence[Column], row: Callable[[RunRecord, Sequence[RunRecord]], Row]
) -> list[Group]:
    """Give a group for each setting; where there is no run, one that says so."""
    settings = grouped(records, setting_of)
    return [
        Group(f"{MEASURED}: {setting}", ranked(columns, [row(run, runs) for run in runs]))
        for setting, runs in settings.items()
    ] or [Group(MEASURED, (Row("every method"),))]


def _improvement(record: RunRecord, rivals: Iterable[RunRecord], ours: str) -> Value:
    """Give how far ours is ahead of a run: the one with the same weights, if there is such."""
    if record.method == ours:
        return Value()
    candidates = [rival for rival in rivals if rival.method == ours]
    if not candidates:
        return Value()
    ahead = min(candidates, key=lambda rival: (rival.weights != record.weights, rival.weights, rival.started))
    return Value(last_accuracy(ahead) - last_accuracy(record), form="+.2f")


def balance_table(protocol: str, records: Iterable[RunRecord]) -> Table:
    """Give what one accuracy hides, after the last session: old against new classes, and what it cost."""
    over = "after the last session, %"
    columns = (
        *(Column(name, over, rank=True) for name in ("base", "novel", "harmonic mean")),
        Column("performance drop"),
        Column("gAcc", rank=True),
        Column("learning, s"),
        Column("kept, MB"),
    )
    figures = ("base", "novel", "harmonic_mean", "performance_drop", "generalised", "learn_seconds")

    def row(record: RunRecord, _: Sequence[RunRecord]) -> Row:
        values = [Value.of(record.over_draws(name)) for name in figures]
        return Row(name_of(record.method), (*values, Value(record.model_bytes / 1e6)), remark_on(record))

    runs = [record for record in records if record.protocol == protocol]
    notes = (
        "Performance drop: first accuracy − last. gAcc: generalised accuracy (Tang et al., 2024).",
        "Learning: all sessions of one draw, without the making of activations. Kept: what the method remembers.",
    )
    groups = tuple(_measured(runs, columns, row))
    return Table(f"{title_of(protocol)}: old and new classes, and cost", "method", columns, groups, notes=notes)


def ablation_table(records: Iterable[RunRecord]) -> Table:
    """Give the paper's ablation (Table 3): its models, three data sets, last accuracy and average."""
    runs = [record for record in records if record.method in ABLATION.values() and record.protocol in TABLES]
    groups = {
        f"{MEASURED}: {setting}": {
            (run.method, run.protocol): run for run in sorted(alike, key=lambda run: run.started)
        }
        for setting, alike in grouped(runs, setting_of).items()
    }
    notes = [*[SPREAD] * any(len(run.draws) > 1 for run in runs), *REMARKS["ablation"]]
    if len({(run.method, run.protocol, setting_of(run)) for run in runs}) < len(runs):
        notes.append("Where a model was run several times in one setting, the newest run is shown.")
    return ablation_of(TABLES, groups, notes, missing=NOT_RUN)


def ablation_of(
    protocols: Sequence[str], groups: Mapping[str, Runs], notes: Sequence[str], missing: str | None = None
) -> Table:
    """Give the paper's rows and, under each title, those of runs; `missing` is said of rows and figures not there.

    Without `missing`, rows that no run measures are left out.
    """
    columns = tuple(Column(name, title_of(protocol), True) for protocol in protocols for name in ("final", "average"))
    printed = [
        Row(model, tuple(Value(value) for protocol in protocols for value in figures.get(protocol, (None, None))))
        for model, figures in published_ablation().items()
    ]
    tables = [Group(PUBLISHED, ranked(columns, printed))]
    for title, runs in groups.items():
        rows = [
            Row(model, tuple(value for name in protocols for value in _ablated(runs.get((method, name)), missing)))
            for model, method in ABLATION.items()
            if missing or any(run == method for run, _ in runs)
        ]
        if rows:
            tables.append(Group(title, ranked(columns, rows)))
    if missing and not groups:
        tables.append(Group(MEASURED, tuple(map(Row, ABLATION))))
    title = "Ablation: accuracy after the last session, and average, %"
    return Table(title, "model", columns, tuple(tables), notes=tuple(notes))


def _ablated(record: RunRecord | None, missing: str | None) -> list[Value]:
    if record is None:
        return [Value(words=missing or "–")] * 2
    return [Value.of(record.over_draws(name)) for name in ("accuracy", "average")]


def concept_table(records: Iterable[RunRecord]) -> Table:
    """Give the average cosine between concepts as published, and plain and centred as measured.

    A record brings its own as `extras["concept_cosine"] = {"plain": …, "centred": …}`.
    """
    stated = tuple(
        Row(title_of(name), (Value(value, form=".2e"),)) for name, value in published_concept_cosines().items()
    )
    measured = tuple(
        Row(f"{title_of(record.protocol)}, {kind}", (Value(float(value), form=".2e"),), detail_of(record))
        for record in records
        for kind, value in sorted(record.extras.get("concept_cosine", {}).items())
    )
    groups = (Group(PUBLISHED, stated), Group(MEASURED, measured or (Row("every data set"),)))
    return Table(
        "Average cosine between concepts", "data set", (Column("cosine"),), groups, notes=REMARKS["concept_cosine"]
    )


def comparison_tables(records: Sequence[RunRecord]) -> list[Table]:
    """Give the ablation, of settings in which a model of the paper's was played, and the concepts' cosines, if any."""
    models = set(ABLATION.values()) - {OURS}
    settings = {setting_of(run) for run in records if run.method in models and run.protocol in TABLES}
    tables = [ablation_table(run for run in records if setting_of(run) in settings)] * bool(settings)
    return tables + [concept_table(records)] * any("concept_cosine" in run.extras for run in records)

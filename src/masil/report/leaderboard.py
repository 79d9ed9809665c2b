"""A table for each base session: every method on it, on draws and the standard shots, what it keeps and costs."""

from collections.abc import Callable, Iterable, Sequence

from masil.benchmark import RunRecord, paired_differences
from masil.methods import Method
from masil.report.measured import (
    OURS,
    base_of,
    budget_of,
    draws_of,
    grouped,
    known_method,
    last_accuracy,
    name_of,
    remark_on,
    title_of,
    waiting_note,
)
from masil.report.published import published, published_row
from masil.report.table import Column, Group, Row, Table, Value, ranked

SPREAD = "Mean ± standard deviation over draws of the shots."
COSTS = (
    "HM: harmonic mean of base and novel accuracy. Trains: what a session trains. MB: the size of what is kept. "
    "Seconds: learning, all sessions of one draw, without the making of activations."
)
AHEAD = (
    "{} ahead: difference in last accuracy, and in HM, on the same shots; in brackets, the 95 % interval of a paired "
    "t-test over draws."
)
HEADLINES = {"last": "accuracy", "average": "average", "HM": "harmonic_mean"}  # column -> figure
DRAWS, STANDARD = "draws", "standard shots"

Entrant = dict[str, RunRecord]  # a method's run over most draws and its run on the standard shots, where it has them
Link = Callable[[RunRecord], str]  # where a run's file is, seen from the page


def leaderboards(
    protocol: str, records: Iterable[RunRecord], ours: str = OURS, link: Link | None = None
) -> list[Table]:
    """Give a table for every base session of a protocol, the one with most traced runs first.

    A row has a method's figures over draws, on the standard shots, and as published, each in columns of their own where
    there are some, and how far `ours` is ahead of it on the same shots.
    """
    bases = grouped([record for record in records if record.protocol == protocol], base_of)

    def order(base: str) -> tuple[int, bool, str]:
        return -sum(not run.waiting for run in bases[base]), all(run.recipe is None for run in bases[base]), base

    return [_leaderboard(protocol, bases[base], ours, link) for base in sorted(bases, key=order)]


def _leaderboard(protocol: str, runs: Sequence[RunRecord], ours: str, link: Link | None) -> Table:
    entrants = _entrants(runs)
    reference = next((entrant for entrant in entrants if _main(entrant).method == ours), None)
    kinds = [kind for kind in (DRAWS, STANDARD) if any(kind in entrant for entrant in entrants)]
    counts = {draws_of(entrant[DRAWS]) for entrant in entrants if DRAWS in entrant}
    titles = {DRAWS: counts.pop() if len(counts) == 1 else DRAWS, STANDARD: STANDARD}

    def values(entrant: Entrant) -> dict[Column, Value]:
        run = _main(entrant)
        row: dict[Column, Value] = {}
        for kind in kinds:
            for name, figure in HEADLINES.items():
                spread = entrant[kind].over_draws(figure) if kind in entrant else None
                row[Column(name, titles[kind], rank=True)] = Value.of(spread)
        if reference is not None:
            row[Column(f"{name_of(ours)} ahead")] = _ahead(reference, entrant, "accuracy")
            row[Column("ahead in HM")] = _ahead(reference, entrant, "harmonic_mean")
        if published(protocol):
            printed = published_row(protocol, name_of(run.method))
            row[Column("last", "published")] = Value(printed.last if printed else None)
            row[Column("average", "published")] = Value(printed.average if printed else None)
        method, seconds = known_method(run.method), run.over_draws("learn_seconds")
        row[Column("trains")] = Value(words=method.trains) if method else Value()
        row[Column("keeps")] = Value(words=kept(method)) if method else Value()
        row[Column("MB")] = Value(run.model_bytes / 1e6, form=",.1f")
        row[Column("seconds")] = Value(seconds.mean if seconds else None, form=",.1f")
        if link is not None:
            for kind in kinds:
                file = link(entrant[kind]) if kind in entrant else ""
                row[Column(titles[kind], "record")] = Value(words="JSON", link=file) if file else Value()
        return row

    columns = tuple(values(entrants[0]))  # all rows have the same
    rows = [
        Row(name_of(_main(entrant).method), tuple(values(entrant).values()), remark_on(_main(entrant)))
        for entrant in entrants
    ]
    notes = [SPREAD] * (DRAWS in kinds) + [AHEAD.format(name_of(ours))] * (reference is not None)
    notes += [COSTS, *waiting_note(runs)]
    title = ", ".join(filter(None, [base_of(runs[0]), budget_of(runs)]))
    groups = (Group(title, ranked(columns, rows)),)
    return Table(f"{title_of(protocol)}: all methods", "method", columns, groups, notes=tuple(notes))


def _ahead(ours: Entrant, theirs: Entrant, figure: str) -> Value:
    """Give how far ours is ahead in a figure on the shots that both have: the draws, or else the standard ones."""
    if ours is theirs:
        return Value()
    differences = (paired_differences(ours[kind], theirs[kind], figure) for kind in ours if kind in theirs)
    return Value.difference(next(filter(None, differences), ()))


def _entrants(runs: Sequence[RunRecord]) -> list[Entrant]:
    """Put the runs of each method together, apart where other parameters were chosen; the most accurate is first."""
    by_method: dict[str, Entrant] = {}
    for run in sorted(runs, key=lambda run: (run.draws[0].draw is None, len(run.draws), run.started)):
        entrant = by_method.setdefault(f"{run.method} {run.given} {run.recipe}", {})
        entrant[STANDARD if run.draws[0].draw is None else DRAWS] = run
    return sorted(by_method.values(), key=lambda entrant: -last_accuracy(_main(entrant)))


def _main(entrant: Entrant) -> RunRecord:
    """Give the run over draws, or else on the standard shots."""
    return next(iter(entrant.values()))


def kept(method: type[Method]) -> str:
    """Say what of the past a method keeps: "means, weights"."""
    return ", ".join(str(part.name).lower() for part in method.keeps)

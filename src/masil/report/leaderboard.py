"""One table a base session: every method on it, over draws and on the standard shots, with what it keeps and costs."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from masil.benchmark import RunRecord, over_draws, paired_difference
from masil.methods import Method
from masil.report.measured import (
    OURS,
    base_of,
    budget_of,
    draws_of,
    grouped,
    known_method,
    last,
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
    "{} ahead: difference in last accuracy on the same shots; in brackets, the 95 % interval of a paired t-test over "
    "draws."
)
HEADLINES = {"last": "accuracy", "average": "average", "HM": "harmonic_mean"}  # column -> figure
DRAWS, STANDARD = "draws", "standard shots"

Entrant = dict[str, RunRecord]  # a method's run over most draws and its run on the standard shots, where it has them
Link = Callable[[RunRecord], str]  # where a run's file is, seen from the page


def leaderboards(
    protocol: str, records: Iterable[RunRecord], ours: str = OURS, link: Link | None = None
) -> list[Table]:
    """Give a table for every base session of a protocol, the one with most traced runs first.

    A row has a method's figures over draws, on the standard shots, after balancing its scores, and as published, each
    in columns of their own where there are some, and how far `ours` is ahead of it on the same shots.
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
    parts: list[tuple[Column, Callable[[Entrant], Value]]] = [
        (Column(name, titles[kind], rank=True), partial(_headline, kind=kind, name=figure))
        for kind in kinds
        for name, figure in HEADLINES.items()
    ]
    if any(draw.balanced for run in runs for draw in run.draws):
        parts += [
            (Column(name, "balanced", rank=True), partial(_balanced, name=figure)) for name, figure in HEADLINES.items()
        ]
    if reference is not None:
        parts.append((Column(f"{name_of(ours)} ahead"), partial(_ahead, ours=reference)))
    if published(protocol):
        parts += [(Column(name, "published"), partial(_published, name=name)) for name in ("last", "average")]
    parts += [(Column(name), partial(_habit, name=name)) for name in ("trains", "keeps", "MB", "seconds")]
    if link is not None:
        parts += [(Column(titles[kind], "record"), partial(_record, kind=kind, link=link)) for kind in kinds]
    columns = tuple(column for column, _ in parts)
    rows = [
        Row(name_of(_main(entrant).method), tuple(value(entrant) for _, value in parts), remark_on(_main(entrant)))
        for entrant in entrants
    ]
    notes = [SPREAD] * (DRAWS in kinds) + [AHEAD.format(name_of(ours))] * (reference is not None)
    notes += [COSTS, *waiting_note(runs)]
    title = ", ".join(filter(None, [base_of(runs[0]), budget_of(runs)]))
    groups = (Group(title, ranked(columns, rows)),)
    return Table(f"{title_of(protocol)}: all methods", "method", columns, groups, notes=tuple(notes))


def _headline(entrant: Entrant, kind: str, name: str) -> Value:
    return Value.of(last(entrant[kind], name)) if kind in entrant else Value()


def _balanced(entrant: Entrant, name: str) -> Value:
    return Value.of(over_draws(_main(entrant).draws, name, balanced=True))


def _ahead(entrant: Entrant, ours: Entrant) -> Value:
    if entrant is ours:
        return Value()
    differences = (paired_difference(ours[kind], entrant[kind]) for kind in ours if kind in entrant)
    return Value.difference(next((difference for difference in differences if difference is not None), None))


def _published(entrant: Entrant, name: str) -> Value:
    run = _main(entrant)
    row = published_row(run.protocol, name_of(run.method))
    return Value() if row is None else Value(getattr(row, name))


def _habit(entrant: Entrant, name: str) -> Value:
    """Say what a method trains in a session and keeps between sessions, as its class declares, and what it cost."""
    run = _main(entrant)
    if name == "MB":
        return Value(run.model_bytes / 1e6, form=",.1f")
    if name == "seconds":
        return Value(seconds.mean if (seconds := last(run, "learn_seconds")) else None, form=",.1f")
    method = known_method(run.method)
    if method is None:
        return Value()
    return Value(words=method.trains if name == "trains" else kept(method))


def _record(entrant: Entrant, kind: str, link: Link) -> Value:
    return Value(words="JSON", link=link(entrant[kind])) if kind in entrant else Value()


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

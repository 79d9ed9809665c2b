"""What a run record says in a table or a figure: its name, what distinguishes it, and figures over its draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from masil.benchmark import DrawRecord, RunRecord
from masil.errors import InputError
from masil.report.facts import TITLES
from masil.report.table import Cell

# A method under the name by which the literature's tables know it; others are called as in `masil run --method`.
NAMES = {
    "alice": "ALICE",
    "cec": "CEC",
    "d-cosine": "D-Cosine",
    "d-negcosine": "D-NegCosine",
    "eeil": "EEIL",
    "fact": "FACT",
    "fecam": "FeCAM",
    "fixed-classifier": "Fixed classifier",
    "icarl": "iCaRL",
    "learnable-ce": "Learnable + CE",
    "lucir": "NCM (LUCIR)",
    "masil": "MASIL",
    "masil-paper": "MASIL, to the paper's letter",
    "nc-ce": "NC + CE",
    "nc-etf-cf": "NC + ETF loss + CF",
    "nc-fscil": "NC-FSCIL",
    "ranpac": "RanPAC",
    "regularizer": "Regularizer",
    "teen": "TEEN",
}
SERIES = ("accuracy", "base", "novel", "harmonic_mean")


def title_of(protocol: str) -> str:
    """Give a protocol's name as people write it."""
    return TITLES.get(protocol, protocol)


def name_of(method: str) -> str:
    """Give a method's name as the literature writes it."""
    return NAMES.get(method, method)


def detail_of(record: RunRecord) -> str:
    """Say what else than its method distinguishes a run: backbone, where its weights are from, and the draws."""
    return ", ".join(filter(None, [_detail(record, record.recipe), _particulars(record)]))


def setting_of(record: RunRecord) -> str:
    """Say the same of all methods that train by one recipe, be it each in its own way."""
    return _detail(record, record.recipe and record.recipe.removesuffix(f"+{record.method}"))


def remark_on(record: RunRecord) -> str:
    """Say what a reader of a run's row must know: whose backbone it has, what was chosen, what is missing."""
    own = "backbone trained its own way" if setting_of(record) != _detail(record, record.recipe) else ""
    return ", ".join(filter(None, [own, _particulars(record)]))


def _particulars(record: RunRecord) -> str:
    parts = [f"{name} = {value}" for name, value in record.given.items()]
    if record.missing:
        parts.append(f"{len(record.missing)} of {len(record.asked)} draws missing")
    if record.waiting:
        parts.append(record.waiting)
    return ", ".join(parts)


def _detail(record: RunRecord, recipe: str | None) -> str:
    if recipe:
        origin = f"trained by {recipe}"
    else:
        origin = record.weights if len(record.weights) <= 12 else f"weights {record.weights[:8]}"
    parts = [record.backbone, origin, draws_of(record)]
    if record.flip:
        parts.append("mirrored views")
    return ", ".join(parts)


def alike(records: Iterable[RunRecord]) -> dict[str, list[RunRecord]]:
    """Give the runs of each setting, under what it is; the worst is first, as in the paper."""
    found: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: (setting_of(record), last_accuracy(record), record.method)):
        found.setdefault(setting_of(record), []).append(record)
    return found


def draws_of(record: RunRecord) -> str:
    """Say which shots: "standard shots", "draw 3" or "5 draws"."""
    if len(record.draws) > 1:
        return f"{len(record.draws)} draws"
    draw = record.draws[0].draw
    return "standard shots" if draw is None else f"draw {draw}"


def checked(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Sort records by protocol and what distinguishes them, or say which of them cannot be shown."""
    for record in records:
        what = f"The run of '{record.method}' on '{record.protocol}'"
        if not record.draws or not record.draws[0].sessions:
            raise InputError(
                f"{what} holds no session; was it stopped before its first? Resume it with the same --out."
            )
        lengths = sorted({len(draw.sessions) for draw in record.draws})
        if len(lengths) > 1:
            raise InputError(f"{what} has draws of {lengths[0]} and of {lengths[-1]} sessions; all must be finished.")
    return tuple(sorted(records, key=_order))


def _order(record: RunRecord) -> tuple[int, str, str, str, str, str, str, str]:
    known = list(TITLES)
    place = known.index(record.protocol) if record.protocol in known else len(known)
    identity = (record.protocol, record.method, record.backbone, record.weights, record.recipe or "")
    return (place, *identity, record.started, "".join(record.stamped("command")))


def over_draws(values: Sequence[float | None], form: str = ".2f") -> Cell:
    """Give the mean and, of several, the standard deviation (n − 1); nothing where a draw has nothing."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < len(values):
        return Cell()
    return Cell(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, form)


def series(record: RunRecord, name: str) -> tuple[tuple[float | None, ...], ...]:
    """Give one of `SERIES` by draw and session."""
    return tuple(tuple(getattr(row, name) for row in draw.sessions) for draw in record.draws)


def by_session(record: RunRecord, name: str = "accuracy") -> tuple[Cell, ...]:
    """Give one of `SERIES` by session, over the draws."""
    return tuple(over_draws(values) for values in zip(*series(record, name), strict=True))


def last(record: RunRecord, name: str = "accuracy") -> Cell:
    """Give one of `SERIES` after the last session, over the draws."""
    return by_session(record, name)[-1]


def leading(records: Sequence[RunRecord]) -> RunRecord:
    """Give the run that a report opens with: MASIL's if there is one, and of several the most accurate."""
    return min(records, key=lambda record: (record.method != "masil", -last_accuracy(record)))


def last_accuracy(record: RunRecord) -> float:
    """Give the mean accuracy after the last session."""
    return fmean(draw.sessions[-1].accuracy for draw in record.draws)


def average(record: RunRecord) -> Cell:
    """Give the average accuracy of the sessions, over the draws."""
    return over_draws([draw.average for draw in record.draws])


def teaching_seconds(record: RunRecord) -> Cell:
    """Give the time spent in learning, all sessions together and without the making of activations, over the draws."""
    return over_draws([_teaching(draw) for draw in record.draws])


def _teaching(draw: DrawRecord) -> float:
    return sum(row.learn_seconds for row in draw.sessions)


def confusion_of(record: RunRecord) -> list[list[int]]:
    """Give the last session's confusion between sessions, summed over the draws; nothing where it was not kept."""
    if not all(draw.confusion for draw in record.draws):
        return []
    return [
        [sum(cells) for cells in zip(*rows, strict=True)]
        for rows in zip(*(d.confusion for d in record.draws), strict=True)
    ]

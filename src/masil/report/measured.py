"""Runs as a report speaks of them: names, what distinguishes them, how they are compared."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from masil.benchmark import DIVERGED, RunRecord, mean_cosines
from masil.errors import InputError, lookup
from masil.methods import BALANCE_SUFFIX, METHODS, Method, find_method
from masil.report.published import TITLES

BY_DRAW = {"cosines_by_draw", "diverged_by_draw"}  # extras with a value for each draw
OURS = "masil"  # the method that others are compared with, where nothing else is said


def title_of(protocol: str) -> str:
    """Give a protocol's name as people write it."""
    return TITLES.get(protocol, protocol)


def name_of(method: str) -> str:
    """Give a method's name as the literature's tables write it; one that is not known here is called as it is."""
    known = known_method(method)
    return method if known is None else known.title


def known_method(name: str) -> type[Method] | None:
    """Give a method of this package by its name in a run, with its scores balanced where the name says so."""
    return find_method(name)[1] if name.removesuffix(BALANCE_SUFFIX) in METHODS else None


def base_of(record: RunRecord) -> str:
    """Say what the methods of a comparison share: backbone, base session and views.

    A method that trains its own variant of a recipe is compared with those that train the recipe itself.
    """
    return _base(record, record.recipe and record.recipe.partition("+")[0])


def _base(record: RunRecord, recipe: str | None) -> str:
    weights = record.weights if len(record.weights) <= 12 else f"weights {record.weights[:8]}"
    origin = f"trained by {recipe}" if recipe else weights
    views = {1: "", 2: "mirrored views"}.get(record.views, f"{record.views} views")
    return ", ".join(filter(None, [record.backbone, origin, views]))


def setting_of(record: RunRecord) -> str:
    """Say what runs must share to be ranked: all of `base_of`, and the shots."""
    return f"{base_of(record)}, {draws_of(record)}"


def draws_of(record: RunRecord) -> str:
    """Say which shots: "standard shots", "draw 3", "5 draws" or "standard shots and 5 draws"."""
    if len(record.draws) > 1 and any(draw.draw is None for draw in record.draws):
        return f"standard shots and {len(record.draws) - 1} draws"
    if len(record.draws) > 1:
        return f"{len(record.draws)} draws"
    draw = record.draws[0].draw
    return "standard shots" if draw is None else f"draw {draw}"


def budget_of(records: Iterable[RunRecord]) -> str:
    """Say how many epochs the base session of runs was trained, where they know."""
    epochs = {len(record.extras["history"]) for record in records if record.extras.get("history")}
    return ", ".join(f"{count} epochs" for count in sorted(epochs))


def detail_of(record: RunRecord) -> str:
    """Say what else than its method distinguishes a run."""
    return ", ".join(filter(None, [_base(record, record.recipe), draws_of(record), _particulars(record)]))


def remark_on(record: RunRecord) -> str:
    """Say what a reader of a run's row must know: whose base session, what was chosen, what diverged or is missing."""
    own_base = base_of(record) != _base(record, record.recipe)
    method = known_method(record.method)
    shared = method is not None and method.head_only and not (own_base or record.extras.get("own_base"))
    base = "own base session" if own_base else "head only" if shared else ""
    return ", ".join(filter(None, [base, _particulars(record)]))


def _particulars(record: RunRecord) -> str:
    parts = [f"{name} = {value}" for name, value in record.given.items()]
    if record.without is not None:
        parts.append("choices on held-out backbones")
    diverged = record.extras.get("diverged_by_draw") or [record.extras.get(DIVERGED, {})]
    if count := sum(map(len, diverged)):
        over = f" in {len(diverged)} draws" if len(diverged) > 1 else ""
        vain = sum(rate == 0 for lowered in diverged for rate in lowered.values())
        left = f", {vain} of them in vain" if vain else ""
        parts.append(f"{count} descent{'s' * (count > 1)} diverged{over}, played again at a lower rate{left}")
    if record.missing:
        parts.append(f"{len(record.missing)} of {len(record.asked)} draws missing")
    return ", ".join([*parts, *(["waiting"] if record.waiting else [])])


def waiting_note(records: Iterable[RunRecord]) -> list[str]:
    """Say why the rows that are marked as waiting are."""
    return [f"Waiting: {why}." for why in sorted({record.waiting for record in records if record.waiting})]


def by_shots(records: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Give each run that has the standard shots and other draws as two runs, which no table mixes."""
    for record in records:
        parts = [with_shots(record, standard=standard) for standard in (True, False)]
        yield from parts if all(part.draws for part in parts) else [record]


def with_shots(record: RunRecord, *, standard: bool) -> RunRecord:
    """Give a run with the standard shots alone, of which there is one choice only, or with the other draws alone."""
    kept = [index for index, draw in enumerate(record.draws) if (draw.draw is None) == standard]
    extras = dict(record.extras)
    for name in BY_DRAW & extras.keys():
        extras[name] = [extras[name][index] for index in kept]
    if extras.get("cosines_by_draw"):
        extras["cosines"] = mean_cosines(extras["cosines_by_draw"])
    asked = tuple(draw for draw in record.asked if (draw is None) == standard)
    failed = {name: why for name, why in record.failed.items() if (name == "None") == standard}
    draws = tuple(record.draws[index] for index in kept)
    return replace(record, draws=draws, asked=asked, failed=failed, extras=extras)


def grouped(records: Iterable[RunRecord], key: Callable[[RunRecord], str]) -> dict[str, list[RunRecord]]:
    """Give the runs that share a key, under it; the worst is first, as in the paper."""
    groups: dict[str, list[RunRecord]] = {}
    for record in sorted(by_shots(records), key=lambda record: (key(record), last_accuracy(record), record.method)):
        groups.setdefault(key(record), []).append(record)
    return groups


def checked(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Sort records by protocol, what distinguishes them and their shots, or say which of them cannot be shown."""
    for record in records:
        what = f"The run of '{record.method}' on '{record.protocol}'"
        if not record.draws or not record.draws[0].sessions:
            raise InputError(
                f"{what} holds no session; was it stopped before its first? Resume it with the same --out."
            )
        lengths = sorted({len(draw.sessions) for draw in record.draws})
        if len(lengths) > 1:
            raise InputError(f"{what} has draws of {lengths[0]} and of {lengths[-1]} sessions; all must be finished.")
    return tuple(sorted(by_shots(records), key=_order))


def _order(record: RunRecord) -> tuple[int | str, ...]:
    protocols = [*TITLES, record.protocol]  # those of others come last
    identity = (record.protocol, record.method, record.backbone, record.weights, record.recipe or "")
    return (protocols.index(record.protocol), *identity, record.started, draws_of(record), *record.stamped("command"))


def select(records: Sequence[RunRecord], only: Sequence[str] = (), methods: Sequence[str] = ()) -> list[RunRecord]:
    """Give the runs of some methods (none: of all) whose protocol and setting hold every text of `only`."""
    played = {record.method: record for record in records}
    for method in methods:
        lookup("method among these runs", method, played)
    chosen = [record for record in records if not methods or record.method in methods]
    for text in only:
        settings = sorted({f"{record.protocol}: {setting_of(record)}" for record in chosen})
        chosen = [record for record in chosen if text.lower() in f"{record.protocol}: {setting_of(record)}".lower()]
        if not chosen:
            raise InputError(f"No run has '{text}' in its protocol or setting; there are: {'; '.join(settings)}.")
    return chosen


def last_accuracy(record: RunRecord) -> float:
    """Give the mean accuracy after the last session."""
    accuracy = record.over_draws("accuracy")
    return accuracy.mean if accuracy is not None else 0.0


def leading(records: Sequence[RunRecord], ours: str = OURS) -> RunRecord:
    """Give the run that a report opens with: ours if there is one, and of several the most accurate."""
    return min(records, key=lambda record: (record.method != ours, -last_accuracy(record)))


def setting_name(record: RunRecord) -> str:
    """Name a setting in file names: the protocol, what it was played on, views and shots."""
    base = (record.recipe or "").partition("+")[0] or record.backbone
    views = {1: "", 2: "mirrored"}.get(record.views, f"{record.views}-views")
    base = base if base.startswith(record.protocol) else f"{record.protocol}-{base}"
    return "-".join(slug(part, "_.=") for part in (base, views, draws_of(record)) if part)


def slug(text: str, allowed: str = "") -> str:
    """Give a name that is safe as a file's and as an id: letters, digits and what is allowed beside them."""
    letters = text if allowed else text.lower()
    return re.sub(rf"[^A-Za-z0-9{re.escape(allowed)}]+", "-", letters).strip("-") or "unnamed"

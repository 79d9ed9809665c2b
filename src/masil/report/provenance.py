"""How a run was measured: what, with which versions, on which machine, and the command that does it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from masil.benchmark import RunRecord, parameters_now
from masil.methods import METHODS
from masil.protocol import PROTOCOLS
from masil.report.measured import detail_of, draws_of


def provenance(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Give name and value of everything one needs to know to trust a run."""
    for place, command in enumerate(record.stamped("command")):
        yield "command" if not place else "and", command
    yield "backbone", f"{record.backbone}, weights {record.weights}"
    yield "base session", f"recipe {record.recipe}" if record.recipe else "not trained"
    yield "model", "the last epoch's"
    yield "shots", _shots(record)
    yield "seed", str(record.seed)
    if record.parameters:
        yield "parameters", _pairs(record.parameters)
    yield "data", record.data_checksum
    yield "code", record.code or "not noted"
    yield "versions", "; ".join(map(_pairs, record.stamped("versions")))
    yield "commit", "; ".join(commits(record)) or "unknown"
    yield "machine", "; ".join(map(_pairs, record.stamped("machine")))
    yield "started", record.started
    yield "took", duration(record.seconds)
    yield "the method keeps", f"{record.model_bytes / 1e6:,.1f} MB"
    yield "peak memory", f"{max(record.stamped('peak_bytes')) / 1e6:,.1f} MB"


def again(record: RunRecord) -> str:
    """Give the commands that repeat a run: the same code, then the same commands."""
    checkout = [f"git checkout {commit}" for commit in record.stamped("commit")[-1:] if commit]
    return "\n".join([*checkout, *record.stamped("command")])


def commits(record: RunRecord) -> list[str]:
    """Give the commits that the draws were played at, each with what is not in it."""
    stamps = [(draw.stamp.commit, draw.stamp.clean) for draw in record.draws]
    return [f"{commit}{'' if clean else ', with changes'}" for commit, clean in dict.fromkeys(stamps) if commit]


def fault(record: RunRecord) -> str | None:
    """Say why a record cannot be believed: it cannot be traced, is not whole, or is older than its parameters."""
    what = f"The run of '{record.method}' on '{record.protocol}' ({detail_of(record)})"
    if not record.code:
        return f"{what} is of an older masil, which noted neither parameters nor code."
    if not all(record.stamped("clean")):
        return f"{what} was played with code that is in no commit; commit it, then play the run again."
    if record.missing:
        return f"{what} is incomplete: {len(record.missing)} of {len(record.asked)} draws are missing."
    if record.method in METHODS and record.protocol in PROTOCOLS and (old := _older(record)):
        return f"{what} is older than its parameters: {old}; play it again."
    return None


def _older(record: RunRecord) -> str:
    """Say in which parameters a run differs from what the same command would play now."""
    now = parameters_now(record)
    pairs = [(name, record.parameters.get(name), now.get(name)) for name in sorted({*now, *record.parameters})]
    return ", ".join(f"{name} was {then!r} and is {today!r}" for name, then, today in pairs if then != today)


def duration(seconds: float) -> str:
    """Give a time as people say it: 4.2 s, 3 min 20 s, 1 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _shots(record: RunRecord) -> str:
    seeds = [str(draw.draw) for draw in record.draws if draw.draw is not None]
    return draws_of(record) + (f" (seeds {', '.join(seeds)})" if len(record.draws) > 1 and seeds else "")


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()) if value is not None)

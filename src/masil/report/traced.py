"""Where runs come from: how they were measured, what repeats them, and whether they can be believed."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from masil.benchmark import RunRecord, Stamp, parameters_now
from masil.protocol import PROTOCOLS
from masil.report.measured import detail_of, draws_of, known_method
from masil.storage import has_commit, read_json
from masil.wording import duration


def provenance(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Give name and value of everything one needs to know to trust a run."""
    for index, command in enumerate(record.stamped("command")):
        yield "and" if index else "command", command
    seeds = [str(draw.draw) for draw in record.draws if draw.draw is not None]
    yield "backbone", f"{record.backbone}, weights {record.weights}"
    yield "base session", f"recipe {record.recipe}" if record.recipe else "not trained"
    yield "model", "the last epoch's"
    yield "shots", draws_of(record) + (f" (seeds {', '.join(seeds)})" if len(seeds) > 1 else "")
    yield "seed", str(record.seed)
    if record.parameters:
        yield "parameters", _pairs(record.parameters)
    yield "data", record.data_checksum
    yield "code", record.code or "not noted"
    if record.own_code:
        yield "the method's own code", "; ".join([record.own_code, *filter(None, record.stamped("own_commit"))])
    yield "versions", "; ".join(map(_pairs, record.stamped("versions")))
    yield "commit", "; ".join(commits(record)) or "unknown"
    yield "machine", "; ".join(map(_pairs, record.stamped("machine")))
    yield "started", record.started
    yield "took", duration(record.seconds, 1)
    yield "the method keeps", f"{record.model_bytes / 1e6:,.1f} MB"
    yield "peak memory", f"{max(record.stamped('peak_bytes')) / 1e6:,.1f} MB"


def again(record: RunRecord, *, elsewhere: bool = False) -> str:
    """Give the commands that repeat a run: the same code, then the same commands, `portable` for use elsewhere."""
    checkout = [f"git checkout {commit}" for commit in record.stamped("commit")[-1:] if commit]
    commands = dict.fromkeys(portable(command) if elsewhere else command for command in record.stamped("command"))
    return "\n".join([*checkout, *commands])


def portable(command: str) -> str:
    """Give a command without the folders of the machine that ran it.

    An absolute path is named from its folder `runs` on, a file by its own name, another folder by its option.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # no command line, so whatever it is stays as it is
        return command
    for index, word in enumerate(words[1:], 1):
        option, equals, value = word.rpartition("=") if word.startswith("-") else (words[index - 1], "", word)
        path = PureWindowsPath(value)  # which knows both kinds of slashes
        if path.root:
            below = path.parts[path.parts.index("runs") :] if "runs" in path.parts else ()
            named = {"-o": "OUT"}.get(option, option.lstrip("-").upper()) if option.startswith("-") else path.name
            name = "/".join(below) or (path.name if path.suffix else named)
            words[index] = f"{option}={name}" if equals else name
    return shlex.join(words)


def commits(record: RunRecord) -> list[str]:
    """Give the commits that the draws were played at, each with what is not in it."""
    stamps = [(draw.stamp.commit, draw.stamp.clean) for draw in record.draws]
    return [f"{commit}{'' if clean else ', with changes'}" for commit, clean in dict.fromkeys(stamps) if commit]


def fault(record: RunRecord) -> str | None:
    """Say why a record cannot be believed: it cannot be traced, is not whole, or is older than its parameters."""
    what = f"The run of '{record.method}' on '{record.protocol}' ({detail_of(record)})"
    if not record.code:
        return f"{what} is of an older masil, which noted neither parameters nor code."
    if untraced := _untraced(draw.stamp for draw in record.draws):
        return f"{what} {untraced}"
    if _is_own(record) and not all(record.stamped("own_commit")):
        return f"{what} was played by code of somebody's own that is in no commit; commit it, then play the run again."
    if record.missing:
        return f"{what} is incomplete: {len(record.missing)} of {len(record.asked)} draws are missing."
    if known_method(record.method) and record.protocol in PROTOCOLS and (changes := _changed_parameters(record)):
        return f"{what} is older than its parameters: {changes}; play it again."
    return None


def ladder_faults(place: Path) -> Iterator[str]:
    """Say which records of `benchmarks/ladder.py` beside the runs of a folder cannot be traced and do not wait."""
    for file in sorted(place.glob("ladder/*.json")):
        record = read_json(file)
        if not record.get("waiting") and (untraced := _untraced([Stamp(**record["stamp"])])):
            yield f"The ladder {file} {untraced}"


def _untraced(stamps: Iterable[Stamp]) -> str | None:
    """Say that something was played with code that no commit of this history holds, if it was."""
    stamps = list(stamps)
    if not all(stamp.clean for stamp in stamps):
        return "was played with code that is in no commit; commit it, then play the run again."
    lost = [stamp.commit for stamp in stamps if stamp.commit and has_commit(stamp.commit) is False]
    return f"names commit {lost[0]}, which this repository does not have; play the run again." if lost else None


def _is_own(record: RunRecord) -> bool:
    """Say whether a run's method is not masil's, as far as older records tell."""
    method = known_method(record.method)
    return record.own_code is not None or method is None or not method.__module__.startswith("masil.")


def _changed_parameters(record: RunRecord) -> str:
    """Say in which parameters a run differs from what the same command would play now."""
    now = parameters_now(record)
    pairs = [(name, record.parameters.get(name), now.get(name)) for name in sorted({*now, *record.parameters})]
    return ", ".join(f"{name} was {then!r} and is {today!r}" for name, then, today in pairs if then != today)


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()) if value is not None)

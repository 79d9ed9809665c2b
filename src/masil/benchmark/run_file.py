"""`run.json`: a record as a versioned file, and back; `docs/run-json.md` describes its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from masil.benchmark.record import DrawRecord, RunRecord, SessionRow, mean_sessions, summary
from masil.errors import StorageError
from masil.files import read_json, write_json

FORMAT = "masil-run"
VERSION = 1
FILE = "run.json"


def write_run(record: RunRecord, folder: Path | str) -> Path:
    """Write `folder`/run.json; until it is whole, the one before it stays."""
    target = Path(folder) / FILE
    write_json(target, run_to_json(record))
    return target


def read_run(path: Path | str) -> RunRecord:
    """Read a record from its file, or from the folder that holds its run.json."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    return run_from_json(read_json(path), path)


def run_to_json(record: RunRecord) -> dict[str, Any]:
    """Give plain values, with means over the draws where readers look first."""
    plain = asdict(record)
    draws = plain.pop("draws")
    first = {name: plain.pop(name) for name in ("method", "protocol")}
    means = {"sessions": mean_sessions(record.draws), "summary": summary(record.draws)}
    return {"format": FORMAT, "version": VERSION, **first, **means, "draws": draws, **plain}


def run_from_json(value: Any, source: Path) -> RunRecord:
    """Check and read what `run_to_json` gave; the means are not read but follow from the draws."""
    check_format(value, source, FORMAT, VERSION, "a run of masil")
    try:
        known = {entry.name: value[entry.name] for entry in fields(RunRecord) if entry.name in value}
        known["draws"] = tuple(draw_from_json(draw) for draw in value["draws"])
        return RunRecord(**known)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(source, error) from error


def draw_from_json(value: Mapping[str, Any]) -> DrawRecord:
    """Read one draw."""
    rows = tuple(
        SessionRow(**{entry.name: row[entry.name] for entry in fields(SessionRow)}) for row in value["sessions"]
    )
    confusion = tuple(map(tuple, value.get("confusion", ())))
    figures = {name: value[name] for name in ("draw", "average", "performance_drop", "generalised")}
    return DrawRecord(sessions=rows, confusion=confusion, **figures)


def check_format(value: Any, source: Path, form: str, version: int, title: str) -> None:
    """Refuse a file of another kind, or of a version that is not known yet."""
    if not isinstance(value, dict) or value.get("format") != form:
        found = value.get("format", "no format") if isinstance(value, dict) else type(value).__name__
        raise StorageError(f"{source} is not {title}: its format should be '{form}' but is {found!r}.")
    if not isinstance(value.get("version"), int):
        raise damaged(source, KeyError("version"))
    if value["version"] > version:
        raise StorageError(
            f"{source} has version {value['version']} of the format '{form}', but this masil reads versions up to "
            f"{version}; a newer masil wrote it. Update masil to read it."
        )


def damaged(source: Path, error: Exception) -> StorageError:
    """Say that a file has the right format but not the right content."""
    what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    return StorageError(f"{source} is damaged or was changed by hand: {what}.")

"""`run.json`: a record as a versioned file, and back; `docs/run-json.md` describes its keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from masil.benchmark.provenance import Stamp
from masil.benchmark.record import DrawRecord, RunRecord, SessionRow, mean_sessions, summary
from masil.errors import StorageError
from masil.files import read_json, write_json

FORMAT = "masil-run"
VERSION = 2
FILE = "run.json"


def write_run(record: RunRecord, folder: Path | str) -> Path:
    """Write `folder`/run.json; until it is whole, the one before it stays."""
    return write_record(record, Path(folder) / FILE)


def write_record(record: RunRecord, file: Path) -> Path:
    """Write a record to a file of any name."""
    write_json(file, sealed(run_to_json(record)))
    return file


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
        value = _from_version_1(value) if value["version"] == 1 else value
        known = {entry.name: value[entry.name] for entry in fields(RunRecord) if entry.name in value}
        known["draws"] = tuple(draw_from_json(draw) for draw in value["draws"])
        known["asked"] = tuple(value["asked"])
        return RunRecord(**known)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(source, error) from error


def _from_version_1(value: Mapping[str, Any]) -> dict[str, Any]:
    """Bring an old record into the present form: one stamp for all draws, that of whoever gathered them."""
    commit, dirty, _ = (value["commit"] or "").partition("-dirty")
    stamp = {
        "commit": commit or None,
        "clean": not dirty if commit else None,
        **{name: value[name] for name in ("command", "versions", "machine", "started")},
        "seconds": value["seconds"] / max(1, len(value["draws"])),
        **{name: value["memory"].get(name, 0) for name in ("model_bytes", "peak_bytes")},
    }
    return {
        **value,
        "draws": [{**draw, "stamp": stamp} for draw in value["draws"]],
        "parameters": {},
        "given": {},
        "weights_checksum": value["weights"],
        "code": "",
        "asked": [draw["draw"] for draw in value["draws"]],
        "failed": value.get("extras", {}).get("failed", {}),
    }


def draw_from_json(value: Mapping[str, Any]) -> DrawRecord:
    """Read one draw."""
    rows = tuple(
        SessionRow(**{entry.name: row[entry.name] for entry in fields(SessionRow)}) for row in value["sessions"]
    )
    confusion = tuple(map(tuple, value.get("confusion", ())))
    stamp = Stamp(**{entry.name: value["stamp"][entry.name] for entry in fields(Stamp)})
    figures = {name: value[name] for name in ("draw", "average", "performance_drop", "generalised")}
    return DrawRecord(sessions=rows, confusion=confusion, stamp=stamp, **figures)


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Add the checksum of everything else, by which a reader sees that a file was changed by hand."""
    content = {name: part for name, part in value.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return {**content, "checksum": hashlib.sha256(text.encode()).hexdigest()}


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
    if "checksum" in value and value["checksum"] != sealed(value)["checksum"]:
        raise StorageError(
            f"{source} was changed after it was written: its checksum does not fit. Take it from where it came, or "
            "play it again."
        )


def damaged(source: Path, error: Exception) -> StorageError:
    """Say that a file has the right format but not the right content."""
    what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    return StorageError(f"{source} is damaged or was changed by hand: {what}.")

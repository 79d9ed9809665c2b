"""`run.json`: a record as a versioned file, and back; `docs/run-json.md` describes its keys."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from masil.benchmark.provenance import Stamp
from masil.benchmark.record import DrawRecord, RunRecord, SessionRow, mean_sessions, summary
from masil.errors import StorageError
from masil.storage import read_json, write_json

FORMAT = "masil-run"
VERSION = 2
FILE = "run.json"


def write_run(record: RunRecord, path: Path | str) -> Path:
    """Write a record to a file whose name ends in .json, else as run.json into the folder `path`; give the file.

    The means over the draws come first, where readers look. Until the new file is whole, the old one stays.
    """
    path = Path(path)
    file = path if path.suffix == ".json" else path / FILE
    plain = asdict(record)
    del plain["source"]
    first = {name: plain.pop(name) for name in ("method", "protocol")}
    means = {"sessions": mean_sessions(record.draws), "summary": summary(record.draws), "draws": plain.pop("draws")}
    write_sealed(file, {"format": FORMAT, "version": VERSION, **first, **means, **plain})
    return file


def read_run(path: Path | str) -> RunRecord:
    """Read a record from its file, or from the folder that holds its run.json. The means follow from the draws."""
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    value = read_sealed(path, FORMAT, VERSION, "a run of masil")
    try:
        value = _from_version_1(value) if value["version"] == 1 else value
        value.setdefault("views", 2 if value.get("flip") else 1)  # as it was called when there were two at the most
        draws = tuple(draw_from_json(draw) for draw in value["draws"])
        parts = {"draws": draws, "asked": tuple(value["asked"]), "source": path}
        return RunRecord(**known_fields(RunRecord, value) | parts)
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error) from error


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
    parts = {
        "sessions": tuple(SessionRow(**known_fields(SessionRow, row)) for row in value["sessions"]),
        "stamp": Stamp(**known_fields(Stamp, value["stamp"])),
        "confusion": tuple(map(tuple, value.get("confusion", ()))),
    }
    return DrawRecord(**known_fields(DrawRecord, value) | parts)


def known_fields(record: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """Give the values of a record's fields, those with a default only where they are there; others are passed over."""
    return {
        part.name: value[part.name]
        for part in fields(record)
        if part.name in value or (part.default is MISSING and part.default_factory is MISSING)
    }


def write_sealed(file: Path, value: Mapping[str, Any]) -> None:
    """Write JSON with its checksum, by which a reader sees that the file was changed by hand."""
    write_json(file, {**value, "checksum": _checksum(value)})


def read_sealed(file: Path, form: str, version: int, title: str) -> dict[str, Any]:
    """Read what `write_sealed` wrote; refuse a file of another kind, of a newer version, or changed by hand."""
    value = read_json(file)
    if not isinstance(value, dict) or value.get("format") != form:
        actual = value.get("format", "no format") if isinstance(value, dict) else type(value).__name__
        raise StorageError(f"{file} is not {title}: its format should be '{form}' but is {actual!r}.")
    if not isinstance(value.get("version"), int):
        raise damaged(file, KeyError("version"))
    if value["version"] > version:
        raise StorageError(
            f"{file} has version {value['version']} of the format '{form}', but this masil reads versions up to "
            f"{version}; a newer masil wrote it. Update masil to read it."
        )
    sealed = value["version"] != 1 or "checksum" in value  # version 1 began without
    if sealed and value.get("checksum") != _checksum(value):
        what = "does not fit" if "checksum" in value else "is missing"
        raise StorageError(
            f"{file} was changed after it was written: its checksum {what}. Take it from where it came, or play it "
            "again."
        )
    return value


def _checksum(value: Mapping[str, Any]) -> str:
    """Give the sha256 of everything but the checksum itself."""
    content = {name: part for name, part in value.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def damaged(file: Path, error: Exception) -> StorageError:
    """Say that a file has the right format but not the right content."""
    what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    return StorageError(f"{file} is damaged or was changed by hand: {what}.")

"""Protocols of one's own: from a JSON file, or cut out of a folder of photos."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from masil.data import Dataset
from masil.errors import InputError, suggest
from masil.files import read_json
from masil.protocol.protocol import Protocol


def read_protocol(file: Path) -> Protocol:
    """Read a protocol: a JSON object with the fields of `Protocol`, where `dataset` is a name or a folder of photos."""
    value: Any = read_json(file)
    if not isinstance(value, dict):
        raise InputError(
            f"{file} should hold a table of values (dataset, base_classes, …), but holds a {type(value).__name__}."
        )
    known = [entry.name for entry in fields(Protocol)]
    for name in value:
        if name not in known:
            raise InputError(f"{file}: a protocol has no '{name}'; {suggest(name, known)}")
    values = {"name": file.stem, **value}
    if missing := [name for name in known if name not in values and name != "order"]:
        raise InputError(f"{file}: a protocol needs '{missing[0]}'.")
    if values.get("order") is not None:
        values["order"] = tuple(values["order"])
    return Protocol(**values)


def cut_protocol(dataset: Dataset, place: Path, *, base: int, way: int, shot: int) -> Protocol:
    """Cut a data set's classes, in their order, into a base session and as many sessions of `way` as they fill."""
    sessions = (len(dataset.classes) - base) // max(1, way)
    if base < 1 or way < 1 or sessions < 1:
        raise InputError(
            f"{place} has {len(dataset.classes)} classes, which is too few for {base} base classes and a session of "
            f"{way}; lower --base or --way."
        )
    return Protocol(place.name or "folder", str(place), base_classes=base, sessions=sessions, way=way, shot=shot)

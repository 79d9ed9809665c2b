"""Dataclasses of plain values, read back from JSON: what does not fit is named, never guessed."""

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any, TypeVar

from masil.errors import InputError, suggest

T = TypeVar("T")


def build(kind: type[T], value: Any, where: str) -> T:
    """Make a dataclass of a table, its parts by the types of its fields, naming what does not fit."""
    if not isinstance(value, dict):
        raise InputError(f"'{where}' is a table of values, but this is {value!r}.")
    hints = typing.get_type_hints(kind)
    for key in value:
        if key not in hints:
            raise InputError(f"A recipe has no '{key}' in '{where}'; {suggest(key, hints)}")
    parts = {key: _part(hints[key], entry, key) for key, entry in value.items()}
    try:
        return kind(**parts)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"'{where}' cannot be read ({error}).") from error


def _part(hint: Any, value: Any, where: str) -> Any:
    """Check one value against the type of its field; a field that is a dataclass is built from its own table."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for choice in choices:
        if dataclasses.is_dataclass(choice) and isinstance(choice, type) and value is not None:
            return build(choice, value, where)
    plain = tuple(typing.get_origin(choice) or choice for choice in choices)
    accepted = {float: (float, int), tuple: (tuple, list)}
    allowed = tuple(kind for choice in plain for kind in accepted.get(choice, (choice,)))
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        raise InputError(f"'{where}' cannot be {value!r}.")
    return value


def flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give every plain value of a table of tables under its dotted name."""
    for key, entry in value.items():
        if isinstance(entry, dict):
            yield from flat(entry, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", entry

"""Dataclasses as JSON and back. What does not fit is named in a sentence, never guessed."""

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, TypeVar

from masil.errors import InputError, suggest

T = TypeVar("T")


def to_json(record: Any, version: int | None = None) -> dict[str, Any]:
    """Give a dataclass as plain values, after its version if it has one; `from_json` gives an equal one back."""
    return ({} if version is None else {"version": version}) | asdict(record)


def from_json(kind: type[T], value: Any, title: str, version: int | None = None) -> T:
    """Make a dataclass of the values that `to_json` gave, checked by the types of its fields.

    What is missing takes its default. `title` is what people call such a record: "recipe". InputError says what does
    not fit; a check in the dataclass's own `__post_init__` does so, too.
    """
    if version is not None and isinstance(value, dict):
        value = dict(value)
        if (given := value.pop("version", version)) != version:
            raise InputError(f"The {title} has version {given!r} but this masil reads version {version}; update masil.")
    return _build(kind, value, title, title)


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give every plain value of a table of tables under its dotted name."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def fits(hint: Any, value: Any) -> bool:
    """Say whether a plain value has a type: a plain one, Literal, or a tuple or mapping of such."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if len(_choices(hint)) > 1:
        return any(fits(choice, value) for choice in arguments)
    if origin is typing.Literal:
        return isinstance(value, str | int | None) and value in arguments
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False
        wanted = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return len(wanted) == len(value) and all(map(fits, wanted, value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entries = value.items() if isinstance(value, dict) else [(None, None)]
        return all(fits(arguments[0], key) and fits(arguments[1], entry) for key, entry in entries)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def _build(kind: type[T], value: Any, name: str, title: str) -> T:
    if not isinstance(value, dict):
        raise InputError(f"'{name}' is a table of values, but this is {_short(value)}.")
    types_of_fields = typing.get_type_hints(kind)
    for key in value:
        if key not in types_of_fields:
            raise InputError(f"A {title} has no '{key}' in '{name}'; {suggest(str(key), types_of_fields)}")
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name not in value and field.init and field.default is field.default_factory is MISSING:
            raise InputError(f"A {title} needs '{field.name}' in '{name}'.")
    try:
        return kind(**{key: _field(types_of_fields[key], entry, key, title) for key, entry in value.items()})
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"'{name}' cannot be read ({error}).") from error


def _field(hint: Any, value: Any, name: str, title: str) -> Any:
    """Read one field; where its type is a dataclass, from a table of its own. JSON's lists become tuples."""
    choices = _choices(hint)
    for choice in choices:
        if is_dataclass(choice) and isinstance(choice, type) and value is not None:
            return _build(choice, value, name, title)
    if not any(fits(choice, value) for choice in choices):
        raise InputError(f"'{name}' cannot be {_short(value)}.")
    return _as_tuple(value) if any(typing.get_origin(choice) is tuple for choice in choices) else value


def _choices(hint: Any) -> tuple[Any, ...]:
    """Give the parts of a union, or a type alone."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _as_tuple(value: Any) -> Any:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(_as_tuple(entry) for entry in value) if is_list else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

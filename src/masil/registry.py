"""Names, and what they stand for; other packages add to them by entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, final

from masil.errors import InputError

T = TypeVar("T")


@final
class Registry(MutableMapping[str, T]):
    """A table that installed packages add to: each of their entry points in `group` is a name and what it stands for.

    They are looked for when a name is asked for that is not masil's own, or all names are; an entry point is loaded
    when it is used. Where a package takes a name of masil's own, masil's stays.
    """

    def __init__(self, group: str, own: Mapping[str, T]) -> None:
        self.group = group
        self.own = dict(own)

    @cached_property
    def others(self) -> dict[str, EntryPoint]:
        """The entry points of other packages, by name."""
        return {point.name: point for point in entry_points(group=self.group) if point.name not in self.own}

    def __getitem__(self, name: str) -> T:
        if name in self.own:
            return self.own[name]
        point = self.others[name]
        try:
            loaded: T = point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else point.module
            raise InputError(
                f"'{name}' comes with the package '{package}', which cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        self.own[name] = loaded
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.others

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self.own, *self.others])

    def __len__(self) -> int:
        return len(set(self.own) | set(self.others))

    def __setitem__(self, name: str, value: T) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        del self.own[name]

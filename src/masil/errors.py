"""One family of errors. Each message is a sentence with the fact and its values, then the likely cause or next step."""

import difflib
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")


class MasilError(Exception):
    """Something the user can put right. The command line prints the sentence alone and exits with 2."""


class InputError(MasilError, ValueError):
    """A value given to masil does not fit: its shape, type, range, or its fit with another value."""


class DataError(MasilError):
    """A data set, an image or a list of images is missing, damaged or not what it should be."""


class StorageError(MasilError):
    """A file of masil's own (model, checkpoint, store, cache) cannot be read or written."""


class DeviceError(MasilError):
    """A device or an engine that was asked for is not there or does not work."""


class UnknownNameError(MasilError, KeyError):
    """A name that is in no table of masil's."""

    # KeyError prints the repr of its argument; people are to read the sentence.
    __str__ = Exception.__str__


class NoEffectWarning(UserWarning):
    """A setting was given that has no effect beside the other settings."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, as the end of a sentence, or list the known ones."""
    names = sorted(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{folded[close[0]]}'?"
    return f"known are: {', '.join(names)}." if names else "none is known."


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Give the entry called `name`, or raise a sentence that suggests the nearest one."""
    if name in table:
        return table[name]
    raise UnknownNameError(f"There is no {kind} called '{name}'; {suggest(name, table)}")


def is_number(value: Any, kind: type = Real) -> bool:
    """Say whether a value is a number of a kind, NumPy's among them; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def check_seed(seed: int) -> int:
    """Give a seed that every generator takes, or refuse it."""
    if not is_number(seed, Integral) or not 0 <= seed < 2**63:
        raise InputError(f"The seed is {seed!r}; it must be a whole number from 0 to 2⁶³ − 1.")
    return seed

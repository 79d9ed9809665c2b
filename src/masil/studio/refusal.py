"""What a client is told when something cannot be done: the sentence the command line would print, and a status."""

from __future__ import annotations

from typing import final

from masil.errors import DataError, DeviceError, InputError, MasilError, StorageError, UnknownNameError

_STATUS: tuple[tuple[type[MasilError], int], ...] = (
    (UnknownNameError, 404),
    (DataError, 422),
    (InputError, 422),
    (StorageError, 507),
    (DeviceError, 503),
)


@final
class RefusedError(MasilError):
    """A request that the studio turns away before the learner sees it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def status_of(error: MasilError) -> int:
    """Give the HTTP status of an error of masil's family."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)

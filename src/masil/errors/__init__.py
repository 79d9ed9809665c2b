"""The errors a user can put right, and "did you mean"."""

from masil.errors.errors import (
    DataError,
    DeviceError,
    InputError,
    MasilError,
    NoEffectWarning,
    StorageError,
    UnknownNameError,
    lookup,
    suggest,
)

__all__ = [
    "DataError",
    "DeviceError",
    "InputError",
    "MasilError",
    "NoEffectWarning",
    "StorageError",
    "UnknownNameError",
    "lookup",
    "suggest",
]

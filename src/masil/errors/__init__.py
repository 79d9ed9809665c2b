"""The errors a user can put right, and what their sentences are made of."""

from masil.errors.errors import (
    DataError,
    DeviceError,
    InputError,
    MasilError,
    NoEffectWarning,
    StorageError,
    UnknownNameError,
    lookup,
    plural,
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
    "plural",
    "suggest",
]

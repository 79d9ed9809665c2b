"""The probe's answers, one file per machine, torch version and probe version."""

import os
from contextlib import suppress
from pathlib import Path

from masil.errors import InputError, StorageError
from masil.files import cache_folder, read_json, write_json
from masil.hardware.hardware import Hardware
from masil.hardware.machine import key

_ANSWERS: dict[Path, Hardware] = {}  # so that a cache that cannot be written costs one probe per process, not many


def known() -> Hardware | None:
    """Give the answer if there is one already; a file that is damaged or cannot be read is none."""
    file = _file()
    if file not in _ANSWERS:
        with suppress(StorageError, InputError):
            hardware = Hardware.from_json(read_json(file))
            if hardware.key == key():
                _ANSWERS[file] = hardware
    return _ANSWERS.get(file)


def keep(hardware: Hardware) -> None:
    """Keep an answer: in this process always, for later ones if it is settled and the cache can be written."""
    _ANSWERS[_file()] = hardware
    if hardware.settled:
        with suppress(StorageError):
            write_json(_file(), hardware.to_json())


def _file() -> Path:
    try:
        folder = cache_folder("hardware")
    except RuntimeError:  # a user without a home, as in some containers: a place where nothing can be read or written
        folder = Path(os.devnull)
    return folder / f"{key()}.json"

"""How much one request, and all of them together, may ask of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from masil.errors import InputError

MEGABYTE = 1_000_000


@final
@dataclass(frozen=True)
class Limits:
    """Upper bounds. The pixels of one image are bounded where it is decoded (`masil.data.decode_image`)."""

    request_bytes: int = 100 * MEGABYTE  # of one request
    image_bytes: int = 30 * MEGABYTE  # of one image file
    images: int = 50  # in one request
    held_bytes: int = 500 * MEGABYTE  # of all requests that are being read or answered
    seconds: float = 30.0  # to send a request, to wait for a turn, and to decode its images: each
    name_length: int = 200  # characters of a class name

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise InputError(f"The limit `{name}` is {value}; it must be positive.")

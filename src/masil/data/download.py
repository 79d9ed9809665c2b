"""Bring a file over HTTP: with a bar, on from where an earlier try stopped, under its name only once it is whole."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

from masil.errors import DataError, StorageError
from masil.files import atomic_path, digest
from masil.progress import bar

_CHUNK = 1 << 18
_SILENCE = 60.0  # seconds without a byte after which a connection counts as broken


def download(url: str, target: Path, md5: str, attempts: int = 4, pause: float = 1.0) -> Path:
    """Bring `url` to `target`, or raise a sentence; what has arrived waits in `target`.part for the next call.

    A connection that breaks is taken up again, `attempts` times in all, after `pause`, 2 · `pause`, … seconds; a server
    that cannot continue is read from the start. A continued file with the wrong checksum is read again from the start.
    """
    if not url.startswith(("http://", "https://")):
        raise DataError(f"{url} cannot be downloaded; only http and https can.")
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        continued = part.exists()
        found = _fetch(url, part, attempts, pause)
        if found != md5 and continued:
            part.unlink()
            found = _fetch(url, part, attempts, pause)
        if found != md5:
            part.unlink()
            raise DataError(
                f"{url} sent a file with md5 {found} instead of {md5}; it was thrown away. Try again later."
            )
    except OSError as error:
        raise StorageError(f"{part} cannot be written ({error.strerror}).") from error
    with atomic_path(target) as whole:
        part.replace(whole)
    return target


class _BrokenError(Exception):
    """The connection broke, or never came about; another attempt may go further."""


def _fetch(url: str, part: Path, attempts: int, pause: float) -> str:
    """Fetch what is missing until nothing is, and give the checksum."""
    for attempt in count(1):
        try:
            _append(url, part)
            return digest(part, "md5")
        except _BrokenError as error:
            if attempt >= attempts:
                raise DataError(
                    f"{url} could not be downloaded ({error}); {_size(part):,} bytes of it are in {part}. "
                    "Is the network up? Run it again to go on from there."
                ) from error
            time.sleep(pause * attempt)
    raise AssertionError("unreachable")


def _append(url: str, part: Path) -> None:
    """Ask for the bytes that `part` lacks and append them."""
    start = _size(part)
    with closing(_request(url, start)) as answer:
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # nothing is missing, or `part` is of another file: the checksum will tell
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            start = 0
        total = None if answer.length is None else start + answer.length
        with part.open("ab" if start else "wb") as file, bar(f"{part.stem} (MB)", total and total / 1e6) as advance:
            advance(start / 1e6)
            for chunk in _chunks(answer):
                file.write(chunk)
                advance(len(chunk) / 1e6)
    if total is not None and _size(part) < total:
        raise _BrokenError(f"the connection closed after {_size(part):,} of {total:,} bytes")


def _request(url: str, start: int) -> Any:
    """Open the connection. Some answers are final; a server's own trouble is worth another attempt."""
    headers = {"User-Agent": "masil", "Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_SILENCE)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return error
        with closing(error):
            if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code == HTTPStatus.TOO_MANY_REQUESTS:
                raise _BrokenError(f"the server answered {error.code} {error.reason}") from error
            raise DataError(f"{url} cannot be downloaded: the server answered {error.code} {error.reason}.") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _chunks(answer: Any) -> Iterator[bytes]:
    try:
        while chunk := answer.read(_CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(f"the connection broke: {error}") from error


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0

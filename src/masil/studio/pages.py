"""The page: a handful of files that come with the package, read once, and nothing else whatever is asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import PurePath

# Written out, because a system's own table of types may call a script plain text, and browsers then refuse to run it.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def pages() -> dict[str, tuple[bytes, str]]:
    """Give the content and the type of each file of the page, by its name."""
    folder = files("masil.studio").joinpath("static")
    return {file.name: (file.read_bytes(), TYPES[PurePath(file.name).suffix]) for file in folder.iterdir()}

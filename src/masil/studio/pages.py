"""The page: a handful of files that come with the package, read once, and nothing else whatever is asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

TYPES = {
    "index.html": "text/html; charset=utf-8",
    "studio.css": "text/css; charset=utf-8",
    "mark.svg": "image/svg+xml",
    "studio.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "photos.js": "text/javascript; charset=utf-8",
    "camera.js": "text/javascript; charset=utf-8",
    "ask.js": "text/javascript; charset=utf-8",
    "why.js": "text/javascript; charset=utf-8",
    "teach.js": "text/javascript; charset=utf-8",
    "model.js": "text/javascript; charset=utf-8",
}


@cache
def page(name: str) -> tuple[bytes, str] | None:
    """Give a file of the page and its type, or None where the page has no such file."""
    if name not in TYPES:
        return None
    return files("masil.studio").joinpath("static", name).read_bytes(), TYPES[name]

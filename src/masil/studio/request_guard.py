"""Every request is checked and read whole, within limits, before the studio sees any of it.

Refused are pages of other origins, host names that somebody has bound to this address (DNS rebinding), requests without
the token, and requests that are too large or too slow.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from masil.errors import DataError, DeviceError, InputError, MasilError, StorageError, UnknownNameError
from masil.studio.metrics import Metrics

MEGABYTE = 1_000_000
OPEN_PATHS = frozenset({"/api/health", "/api/openapi.json"})  # need no token; all else below /api does
OTHER_ORIGIN = "The request comes from a page of another origin, which may neither read nor teach."
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src blob:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
}  # of every answer; there is no CORS header, so a browser shows no answer to a page of another origin
_STATUS: tuple[tuple[type[MasilError], int], ...] = (
    (UnknownNameError, 404), (DataError, 422), (InputError, 422), (StorageError, 507), (DeviceError, 503)
)  # fmt: skip


@final
class RefusedError(MasilError):
    """A request that the studio refuses before the learner sees it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _GoneError(Exception):
    """The client closed the connection before its request was complete."""


def status_of(error: MasilError) -> int:
    """Give the HTTP status of an error of masil's family."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


@final
@dataclass(frozen=True)
class Limits:
    """How much a request may ask for. The pixels of one image are limited where it is decoded."""

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


@final
@dataclass(frozen=True)
class AccessPolicy:
    """Who may use the studio, by the head of a request.

    `names` are host names under which it may be opened, besides localhost and IP addresses. DNS rebinding lets a page
    of evil.example speak to this address under its own name, so that a browser takes both for one origin. It always
    needs a name: an IP address in the Host header is what a person typed.
    """

    token: str | None = None
    names: frozenset[str] = frozenset()

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Let the request pass, or raise the sentence that refuses it."""
        host = headers.get("host", "")
        self._check_host(host)
        if path.startswith("/api/"):
            self._check_origin(method, host, headers)
            if self.token is not None and path not in OPEN_PATHS:
                self._check_token(headers.get("authorization", ""))

    def _check_host(self, host: str) -> None:
        name = _host_name(host)
        if name is not None and (name == "localhost" or name in self.names or _is_address(name)):
            return
        raise RefusedError(
            421, f"This studio is not called {host[:80]!r}; open it by its address, or start it with --name."
        )

    def _check_origin(self, method: str, host: str, headers: Mapping[str, str]) -> None:
        if headers.get("sec-fetch-site") not in (None, "same-origin", "none"):
            raise RefusedError(403, OTHER_ORIGIN)
        origin = headers.get("origin")
        if method in ("GET", "HEAD") or origin is None:
            return  # browsers name the origin with everything that could change something
        if origin.casefold() not in (f"http://{host}".casefold(), f"https://{host}".casefold()):
            raise RefusedError(403, OTHER_ORIGIN)

    def _check_token(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        right = hmac.compare_digest(given.strip().encode(), (self.token or "").encode())
        if scheme.casefold() != "bearer" or not right:
            raise RefusedError(401, "This studio needs its token, which `masil serve` printed when it was started.")


@final
class RequestGuard:
    """An ASGI application around the studio: access, limits of size and time, security headers, metrics.

    A request that is cut off half-way has changed nothing, because nothing has been done with it yet.
    """

    def __init__(self, app: ASGIApp, access: AccessPolicy, limits: Limits, metrics: Metrics) -> None:
        self.app = app
        self.access = access
        self.limits = limits
        self.metrics = metrics
        self._held = 0  # bytes of all requests that are being read or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        start, status, body = time.monotonic(), 0, _Body()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                cache = "no-store" if scope["path"].startswith("/api/") else "no-cache"
                MutableHeaders(scope=message).update({**SECURITY_HEADERS, "cache-control": cache})
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self.access.check(scope["method"], scope["path"], headers)
            await self._read(body, headers.get("content-length", ""), receive)
            await self.app(scope, body.replay(receive), send_with_headers)
        except RefusedError as refusal:
            await _answer(refusal)(scope, receive, send_with_headers)
        except _GoneError:
            status = 499
        finally:
            self._held -= body.size
            self.metrics.answered(scope, status or 500, time.monotonic() - start)

    async def _read(self, body: _Body, announced: str, receive: Receive) -> None:
        self._check_size(int(announced) if announced.isdecimal() else 0)
        try:
            async with asyncio.timeout(self.limits.seconds):
                while not body.complete:
                    self._held += body.take(await receive())
                    self._check_size(body.size)
        except TimeoutError:
            raise RefusedError(408, f"The request was not complete after {self.limits.seconds:g} s.") from None

    def _check_size(self, size: int) -> None:
        most = self.limits.request_bytes
        if size > most:
            raise RefusedError(413, f"The request is larger than the {most / MEGABYTE:g} MB that are taken at once.")
        if self._held > self.limits.held_bytes:
            raise RefusedError(503, "The studio holds as many photos as it can; try again in a moment.")


@final
class _Body:
    """The body of a request."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False

    def take(self, message: Message) -> int:
        """Add what has come, and give its size."""
        if message["type"] == "http.disconnect":
            raise _GoneError
        part = message.get("body", b"")
        self.parts.append(part)
        self.size += len(part)
        self.complete = not message.get("more_body", False)
        return len(part)

    def replay(self, receive: Receive) -> Receive:
        """Give the whole as one message, then whatever else comes."""

        async def again() -> Message:
            if not self.parts:
                return await receive()
            whole, self.parts = b"".join(self.parts), []
            return {"type": "http.request", "body": whole, "more_body": False}

        return again


def is_loopback(host: str) -> bool:
    """Say whether an address can be reached from this machine alone."""
    return ipaddress.ip_address(host).is_loopback if _is_address(host) else host == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str | None:
    """Take the port off a Host header; None where it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is not a number
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None


def _answer(refusal: RefusedError) -> JSONResponse:
    headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else {}
    if refusal.status in (408, 413):
        headers["connection"] = "close"  # the rest of the request is not waited for
    return JSONResponse({"error": str(refusal)}, refusal.status, headers)

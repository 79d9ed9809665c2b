"""The one way in: every request is looked at and read whole, within limits, before any of the studio sees it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from masil.studio.guard import HEADERS, Guard
from masil.studio.limits import MEGABYTE, Limits
from masil.studio.metrics import Metrics
from masil.studio.refusal import RefusedError


class _GoneError(Exception):
    """The client closed the connection before its request was complete."""


@final
class Door:
    """ASGI around the studio: guard, limits of size and time, security headers on whatever comes back, metrics.

    A request that is cut off half-way has changed nothing, because nothing has been done with it yet.
    """

    def __init__(self, app: ASGIApp, guard: Guard, limits: Limits, metrics: Metrics) -> None:
        self.app = app
        self.guard = guard
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

        async def armoured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _with_security(message.get("headers", []), scope["path"])}
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self.guard.check(scope["method"], scope["path"], headers)
            await self._read(body, headers.get("content-length", ""), receive)
            await self.app(scope, body.replay(receive), armoured)
        except RefusedError as refusal:
            await _refuse(refusal, armoured)
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
    """What a request carries."""

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


def _with_security(headers: list[tuple[bytes, bytes]], path: str) -> list[tuple[bytes, bytes]]:
    keep = "no-store" if path.startswith("/api/") else "no-cache"
    added = {**HEADERS, "cache-control": keep}
    return [*headers, *((name.encode(), value.encode()) for name, value in added.items())]


async def _refuse(refusal: RefusedError, send: Send) -> None:
    body = json.dumps({"error": str(refusal)}, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the request is not waited for
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

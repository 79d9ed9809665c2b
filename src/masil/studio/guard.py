"""Who may come in: pages of other origins, names that were bound to this address, and strangers may not."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final
from urllib.parse import urlsplit

from masil.studio.refusal import RefusedError

OPEN = frozenset({"/api/health", "/api/openapi.json"})  # need no token; all else below /api does

FOREIGN = "The request comes from a page of another origin, which may neither read nor teach."

HEADERS = {
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


def is_loopback(host: str) -> bool:
    """Say whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@final
@dataclass(frozen=True)
class Guard:
    """Looks at the head of a request. `names` are the host names, besides localhost and IP addresses, it may carry.

    DNS rebinding lets a page of evil.example speak to this address under its own name, so that a browser takes both for
    one origin. It always needs a name: an IP address in the Host header is what a person typed.
    """

    token: str | None = None
    names: frozenset[str] = frozenset()

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Let the request pass, or raise the sentence that turns it away."""
        host = headers.get("host", "")
        self._check_host(host)
        if path.startswith("/api/"):
            self._check_origin(method, host, headers)
            if self.token is not None and path not in OPEN:
                self._check_token(headers.get("authorization", ""))

    def _check_host(self, host: str) -> None:
        name = _host_name(host)
        if name is not None and (name == "localhost" or name in self.names or _is_address(name)):
            return
        raise RefusedError(
            421, f"This studio is not called {host[:80]!r}; open it by its address, or start it with --name."
        )

    def _check_origin(self, method: str, host: str, headers: Mapping[str, str]) -> None:
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            raise RefusedError(403, FOREIGN)
        origin = headers.get("origin")
        if method in ("GET", "HEAD") or origin is None:
            return  # browsers name the origin with everything that could change something
        if origin.casefold() not in (f"http://{host}".casefold(), f"https://{host}".casefold()):
            raise RefusedError(403, FOREIGN)

    def _check_token(self, authorization: str) -> None:
        scheme, _, given = authorization.partition(" ")
        right = hmac.compare_digest(given.strip().encode(), (self.token or "").encode())
        if scheme.casefold() != "bearer" or not right:
            raise RefusedError(401, "This studio needs its token, which `masil serve` printed when it was started.")


def _host_name(host: str) -> str | None:
    """Take the port off a Host header; None where it is not one."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises where it is not a number
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and "@" not in host else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

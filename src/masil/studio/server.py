"""From a model file to an address: bind first, then load, then say where."""

import errno
import secrets
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import uvicorn

from masil.errors import InputError
from masil.studio.app import create_app
from masil.studio.request_guard import AccessPolicy, Limits, is_loopback


def serve(
    model: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    names: Iterable[str] = (),
    device: str = "auto",
    say: Callable[[str], None] = lambda _line: None,
) -> None:
    """Serve a model, whose file is written on every change, until the process is told to stop.

    Any host but this machine's own needs a token, which every request must carry; "auto" makes one. Port 0 takes a free
    one. `names` are host names under which the studio may be opened besides localhost and IP addresses. `say` is handed
    the address once it can be opened.
    """
    token = check_token(host, token)
    with bind(host, port) as listener:
        own = () if is_loopback(host) else (socket.gethostname(),)
        access = AccessPolicy(token, frozenset(name.casefold() for name in (*own, *names)))
        app = create_app(model, access=access, device=device)
        say(address(host, listener.getsockname()[1], token))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, proxy_headers=False, ws="none",
            timeout_graceful_shutdown=int(Limits().seconds),
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listener])


def check_token(host: str, token: str | None) -> str | None:
    """Give the token in force; refuse an address that others can reach without one."""
    if token == "auto":  # noqa: S105  a word, not a secret
        return secrets.token_urlsafe(24)
    if token is None and not is_loopback(host):
        raise InputError(
            f"At {host} other machines can reach the studio, so it needs a token; add --token auto, or one of your own."
        )
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token):
        raise InputError("The token must be 8 plain characters or more, without spaces; --token auto makes a good one.")
    return token


def bind(host: str, port: int) -> socket.socket:
    """Take the port, or say in a sentence why it cannot be had."""
    if not 0 <= port <= 65535:
        raise InputError(f"The port is {port}; it must lie between 0 and 65535, where 0 takes a free one.")
    try:
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family)
    except socket.gaierror as error:
        raise InputError(f"There is no address called {host!r} ({error.strerror}).") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"Port {port} at {host} is in use already; choose another one with --port.") from error
        if error.errno == errno.EACCES:
            raise InputError(f"Port {port} at {host} needs special rights; choose another one with --port.") from error
        raise InputError(f"The studio cannot listen at {host}, port {port} ({error.strerror}).") from error


def address(host: str, port: int, token: str | None) -> str:
    """Give what is to be typed into a browser. A fragment never leaves it, so the token is in no log."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/" + (f"#token={token}" if token else "")

"""What has been asked and how long it took, in the text that Prometheus reads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import final

from starlette.types import Scope

from masil.learner import Masil

TYPE = "text/plain; version=0.0.4; charset=utf-8"


@final
class Metrics:
    """Counts requests by route and status. Routes, not paths: a client cannot make the list grow."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Take note of a request that is over."""
        route = getattr(scope.get("route"), "path_format", None) or "other"
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE") else "other"
        self._requests[method, route, status] += 1
        self._seconds[route] += seconds

    def text(self, model: Masil) -> str:
        """Give everything, and the size of the model."""
        return "".join(f"{line}\n" for line in (*self._of_requests(), *_of_model(model)))

    def _of_requests(self) -> Iterator[str]:
        yield from _head("requests_total", "counter", "Requests answered.")
        routes = Counter[str]()
        for (method, route, status), count in sorted(self._requests.items()):
            routes[route] += count
            yield f'masil_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
        yield from _head("request_seconds", "summary", "Time from a request's head to its answer.")
        for route, seconds in sorted(self._seconds.items()):
            yield f'masil_request_seconds_sum{{route="{route}"}} {seconds:.6f}'
            yield f'masil_request_seconds_count{{route="{route}"}} {routes[route]}'


def _of_model(model: Masil) -> Iterator[str]:
    values = (
        ("classes", "Classes known.", len(model.memory_.labels)),
        ("sessions", "Sessions in force, the base session included.", len(model.lessons_)),
        ("memory_bytes", "Bytes that the memory of all classes takes.", model.memory_.nbytes),
        ("revision", "Lines in the model's log.", len(model.log_)),
    )
    for name, what, value in values:
        yield from _head(name, "gauge", what)
        yield f"masil_{name} {value}"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP masil_{name} {what}"
    yield f"# TYPE masil_{name} {kind}"

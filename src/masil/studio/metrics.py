"""What has been asked and how long it took, in the text that Prometheus reads."""

from typing import final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Counter, Gauge, Summary, generate_latest
from starlette.types import Scope

from masil.learner import Masil

TYPE = CONTENT_TYPE_PLAIN_0_0_4
OF_MODEL = {
    "masil_classes": "Classes known.",
    "masil_sessions": "Sessions in force, the base session included.",
    "masil_memory_bytes": "Bytes that the memory of all classes takes.",
    "masil_revision": "Lines in the model's log.",
}


@final
class Metrics:
    """Counts requests by route and status. Routes, not paths: a client cannot make the list grow."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "masil_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        timed = "Time from a request's head to its answer."
        self._seconds = Summary("masil_request_seconds", timed, ("route",), registry=registry)
        self._of_model = [Gauge(name, what, registry=registry) for name, what in OF_MODEL.items()]

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Take note of a request that is over."""
        route = getattr(scope.get("route"), "path_format", None) or "other"
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE") else "other"
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, model: Masil) -> bytes:
        """Give everything, and the size of the model."""
        values = (len(model.memory_.labels), len(model.session_rows_), model.memory_.nbytes, len(model.log_))
        for gauge, value in zip(self._of_model, values, strict=True):
            gauge.set(value)
        return generate_latest(self.registry)

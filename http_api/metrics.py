"""What a node counts about its requests, in the Prometheus text format, and the line that it logs for each.

Labels have few values: a route's template, never a path; no session id comes near them or the log.
"""

import logging
from dataclasses import dataclass

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_ROUTE = "none"
"""Label of a request for something that does not exist, or that is no HTTP."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

access_log = logging.getLogger("stockade.http.access")


class Metrics:
    """The counters of one application, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "stockade_http_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "stockade_http_request_seconds",
            "Time from a request to the end of its answer; followed streams are left out.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refusals = Counter("stockade_http_refusals", "Problems answered.", ["code"], registry=self._registry)
        self._records = Counter("stockade_appended_records", "Records stored by appends here.", registry=self._registry)
        self._bytes = Counter(
            "stockade_appended_bytes", "Bytes of the batches stored by appends here.", registry=self._registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """A request was answered; ``seconds`` None: the time says nothing."""
        self._requests.labels(method, route, status).inc()
        if seconds is not None:
            self._seconds.labels(method, route).observe(seconds)

    def refused(self, code: str) -> None:
        """A problem was answered."""
        self._refusals.labels(code).inc()

    def appended(self, records: int, size: int) -> None:
        """A batch was stored."""
        self._records.inc(records)
        self._bytes.inc(size)

    def text(self) -> bytes:
        """All of it, in the Prometheus text format."""
        return generate_latest(self._registry)


@dataclass
class Observation:
    """What the log line of a request needs. ``route`` is a template; a followed stream's time says nothing
    about latency.
    """

    metrics: Metrics
    route: str
    is_stream: bool = False


OBSERVATION = web.RequestKey("observation", Observation)


class AccessLogger(AbstractAccessLogger):
    """Counts each request and logs one line for it: method, route, status, milliseconds, bytes."""

    @property
    def enabled(self) -> bool:
        """Always: requests are counted even when no line is wanted."""
        return True

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Called by the server when an answer has ended; ``time`` in seconds."""
        seen = request.get(OBSERVATION)
        route = seen.route if seen is not None else NO_ROUTE
        if seen is not None:
            seen.metrics.answered(request.method, route, response.status, None if seen.is_stream else time)
        self.logger.info(
            "%s %s %d %.1f ms %d bytes", request.method, route, response.status, time * 1000, response.body_length
        )

"""What a node counts about its requests, in the Prometheus text format, and the line that it logs for each.

Labels have few values: a route's template, never a path; no session id comes near them or the log.
"""

import logging
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONG_S = 5.0
"""A request that took longer is logged even when all went well."""
NO_ROUTE = "none"
"""Label of a request for something that does not exist, or that is no HTTP."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

access_log: logging.Logger = logging.getLogger("stockade.http.access")


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
        self._refused_writes = Counter(
            "stockade_refused_writes", "Writes that partitions refused.", ["code", "reason"], registry=self._registry
        )
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._records = Counter("stockade_appended_records", "Records stored by appends here.", registry=self._registry)
        self._bytes = Counter(
            "stockade_appended_bytes", "Bytes of the batches stored by appends here.", registry=self._registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """A request was answered; ``seconds`` None: the time says nothing."""
        key = (method, route, status)
        known = self._answered.get(key)
        if known is None:  # finding a labelled counter takes longer than counting
            known = self._requests.labels(*key), self._seconds.labels(method, route)
            self._answered[key] = known
        known[0].inc()
        if seconds is not None:
            known[1].observe(seconds)

    def refused(self, code: str) -> None:
        """A problem was answered."""
        self._refusals.labels(code).inc()

    def refused_write(self, code: str, reason: str) -> None:
        """A partition refused a write."""
        self._refused_writes.labels(code, reason).inc()

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
    """Counts each request, and logs a line for it: method, route, status, milliseconds, bytes. The line is for
    debugging, unless the request was refused or took long.
    """

    @property
    def enabled(self) -> bool:
        """Always: requests are counted even when no line is wanted."""
        return True

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Called by the server when an answer has ended; ``time`` in seconds."""
        seen = request.get(OBSERVATION)
        route, metrics, is_stream = NO_ROUTE, None, False
        if seen is not None:
            route, metrics, is_stream = seen.route, seen.metrics, seen.is_stream
        note(metrics, request.method, route, response.status, time, response.body_length, is_stream=is_stream)


def note(
    metrics: Metrics | None, method: str, route: str, status: int, seconds: float, size: int, *, is_stream: bool = False
) -> None:
    """Count an answer of ``size`` bytes, and log its line. The time of a stream says nothing."""
    if metrics is not None:
        metrics.answered(method, route, status, None if is_stream else seconds)
    is_odd = status >= HTTPStatus.BAD_REQUEST or (seconds > LONG_S and not is_stream)
    level = logging.INFO if is_odd else logging.DEBUG
    if access_log.isEnabledFor(level):
        access_log.log(level, "%s %s %d %.1f ms %d bytes", method, route, status, seconds * 1000, size)

"""What a node counts about its requests, in the Prometheus text format, and the line that it logs for each.

Labels have few values: a route's template, never a path; no session id comes near them or the log.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from itertools import accumulate

import prometheus_client
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONG_S = 5.0
"""A request that took longer is logged even when all went well."""
NO_ROUTE = "none"
"""Label of a request for something that does not exist, or that is no HTTP."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

access_log: logging.Logger = logging.getLogger("stockade.http.access")


class Answers(Collector):
    """Answered requests, counted in plain numbers: the library's own counters take a lock and a check each time."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], float] = {}
        self.records = self.bytes = 0
        """Stored by appends here."""

    def add(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """A request was answered; ``seconds`` None: the time says nothing."""
        self._counts[method, route, str(status)] += 1
        if seconds is not None:
            where = method, route
            buckets = self._buckets.get(where)
            if buckets is None:
                buckets, self._sums[where] = self._buckets.setdefault(where, [0] * (len(_SECONDS) + 1)), 0.0
            buckets[bisect_left(_SECONDS, seconds)] += 1
            self._sums[where] += seconds

    def collect(self) -> Iterator[Metric]:
        """Called by the registry when it is read."""
        requests = CounterMetricFamily(
            "stockade_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        for labels, count in self._counts.items():
            requests.add_metric(labels, count)
        yield requests
        yield self._seconds()
        yield CounterMetricFamily("stockade_appended_records", "Records stored by appends here.", self.records)
        yield CounterMetricFamily("stockade_appended_bytes", "Bytes of the batches stored by appends here.", self.bytes)

    def _seconds(self) -> Metric:
        found = HistogramMetricFamily(
            "stockade_http_request_seconds",
            "Time from a request to the end of its answer; followed streams are left out.",
            labels=["method", "route"],
        )
        for labels, buckets in self._buckets.items():
            ends = zip([*map(floatToGoString, _SECONDS), "+Inf"], accumulate(buckets), strict=True)
            found.add_metric(labels, list(ends), self._sums[labels])
        return found


class Metrics:
    """The counters of one application, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._answers = Answers()
        self._registry.register(self._answers)
        self._refusals = prometheus_client.Counter(
            "stockade_http_refusals", "Problems answered.", ["code"], registry=self._registry
        )
        self._refused_writes = prometheus_client.Counter(
            "stockade_refused_writes", "Writes that partitions refused.", ["code", "reason"], registry=self._registry
        )
        self.answered: Callable[[str, str, int, float | None], None] = self._answers.add

    def refused(self, code: str) -> None:
        """A problem was answered."""
        self._refusals.labels(code).inc()

    def refused_write(self, code: str, reason: str) -> None:
        """A partition refused a write."""
        self._refused_writes.labels(code, reason).inc()

    def appended(self, records: int, size: int) -> None:
        """A batch was stored."""
        self._answers.records += records
        self._answers.bytes += size

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

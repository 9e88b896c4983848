"""What a node counts of its requests, in the Prometheus text format, and the line that it logs for each.

Labels have few values: a route's template, never a path. Neither labels nor lines have session ids.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import accumulate
from typing import Any

import prometheus_client
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ...cluster.front.writes import Writes
from .connections import Connections
from .stalls import SECONDS as STALL_SECONDS
from .stalls import Stalls

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONG_S = 5.0
"""A request that took longer is logged at level INFO even when it was not refused."""
NO_ROUTE = "none"
"""Label of a request for something that does not exist, or that is no HTTP."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

access_log: logging.Logger = logging.getLogger("stockade.http.access")
_log = logging.getLogger(__name__)


class Metrics(Collector):
    """The counters of one application, in a registry of their own.

    They are plain numbers, which ``collect`` turns into samples: a counter of the library takes a lock at each count.
    """

    def __init__(self, writes: Writes, connections: Connections, stalls: Stalls) -> None:
        self.fast_path_bugs: int = 0
        """Requests on the fast path that met a bug, and that their route's handler answered."""
        self._writes = writes
        self._connections = connections
        self._stalls = stalls
        self._answers: Counter[tuple[str, str, str]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], float] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        self._refusals = prometheus_client.Counter(
            "stockade_http_refusals", "Problems answered.", ["code"], registry=self._registry
        )

    def answered(
        self, method: str, route: str, status: int, seconds: float, size: int, *, is_stream: bool = False
    ) -> None:
        """Count an answer of ``size`` bytes, and log its line. The time of a stream says nothing about latency."""
        self._answers[method, route, str(status)] += 1
        if not is_stream:
            where = method, route
            buckets = self._buckets.get(where)
            if buckets is None:
                buckets, self._sums[where] = self._buckets.setdefault(where, [0] * (len(_SECONDS) + 1)), 0.0
            buckets[bisect_left(_SECONDS, seconds)] += 1
            self._sums[where] += seconds
        log_answer(method, route, status, seconds, size, is_stream=is_stream)

    def refused(self, code: str) -> None:
        """Count a problem that was answered."""
        self._refusals.labels(code).inc()

    def fast_path_bug(self, route: str) -> None:
        """Count and log the exception that is being handled: the fast path of a route must raise refusals only."""
        self.fast_path_bugs += 1
        _log.exception("the fast path of %s met a bug; the route's handler answers the request", route)

    def text(self) -> bytes:
        """All of them, in the Prometheus text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Called by the registry when it is read."""
        yield _counted("stockade_http_requests", "Requests answered.", ["method", "route", "status"], self._answers)
        yield self._seconds()
        yield self._stalled()
        writes = self._writes
        yield CounterMetricFamily("stockade_appended_records", "Records stored by appends here.", writes.records)
        yield CounterMetricFamily(
            "stockade_appended_bytes", "Bytes of the batches stored by appends here.", writes.bytes
        )
        yield _counted(
            "stockade_refused_writes", "Writes that partitions refused.", ["code", "reason"], writes.refusals
        )
        yield CounterMetricFamily(
            "stockade_http_fast_path_bugs",
            "Requests whose fast path met a bug; the handler of their route answered them.",
            self.fast_path_bugs,
        )
        yield GaugeMetricFamily(
            "stockade_http_connections", "Connections of clients that are open.", len(self._connections)
        )
        ended = {(reason,): count for reason, count in self._connections.ended.items()}
        yield _counted("stockade_http_ended_connections", "Connections that the node ended.", ["reason"], ended)

    def _stalled(self) -> Metric:
        found = HistogramMetricFamily(
            "stockade_loop_stall_seconds",
            "Times for which the event loop stood still: held by what ran on it, or waiting for processor or disk.",
            labels=["cause"],
        )
        stalls = self._stalls
        for cause, counts, total in (("held", stalls.held, stalls.held_s), ("waited", stalls.waited, stalls.waited_s)):
            found.add_metric([cause], _ends(STALL_SECONDS, counts), total)
        return found

    def _seconds(self) -> Metric:
        found = HistogramMetricFamily(
            "stockade_http_request_seconds",
            "Time from a request to the end of its answer; followed streams are left out.",
            labels=["method", "route"],
        )
        for labels, buckets in self._buckets.items():
            found.add_metric(labels, _ends(_SECONDS, buckets), self._sums[labels])
        return found


def _ends(upper: Sequence[float], counts: Sequence[int]) -> list[tuple[str, int]]:
    """The buckets of a histogram as Prometheus has them: each with all that is in those below."""
    return list(zip([*map(floatToGoString, upper), "+Inf"], accumulate(counts), strict=True))


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
    """Counts each request that aiohttp answers, and logs a line for it: method, route, status, milliseconds, bytes."""

    @property
    def enabled(self) -> bool:
        """Always: requests are counted even when no line is wanted."""
        return True

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Called by the server when an answer has ended; ``time`` in seconds."""
        seen = request.get(OBSERVATION)
        status, size = response.status, response.body_length
        if seen is None:  # it did not become a request of the application
            log_answer(request.method, NO_ROUTE, status, time, size)
        else:
            seen.metrics.answered(request.method, seen.route, status, time, size, is_stream=seen.is_stream)


def log_answer(method: str, route: str, status: int, seconds: float, size: int, *, is_stream: bool = False) -> None:
    """Log the line of an answer: at level INFO if the request was refused or took long, otherwise at level DEBUG."""
    is_notable = status >= HTTPStatus.BAD_REQUEST or (seconds > LONG_S and not is_stream)
    level = logging.INFO if is_notable else logging.DEBUG
    if access_log.isEnabledFor(level):
        access_log.log(level, "%s %s %d %.1f ms %d bytes", method, route, status, seconds * 1000, size)


def _counted(name: str, meaning: str, labels: list[str], counts: Mapping[Any, int]) -> Metric:
    """A counter with labels; each key of ``counts`` has a value for each of ``labels``."""
    found = CounterMetricFamily(name, meaning, labels=labels)
    for values, count in counts.items():
        found.add_metric(values, count)
    return found

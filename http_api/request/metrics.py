"""The counters of a node's HTTP requests, the text of /metrics, and the access log.

Labels have few values: a route's template, never a path. Neither labels nor log lines contain session ids.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from time import monotonic

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ...cluster.front.front import Front
from ...cluster.front.writes import now_ms
from ...cluster.https import HttpTls
from ...cluster.measures import Measures
from ...partition.api.cluster import DiskSpace, Latencies, NodeState
from ...partition.version import VERSION
from ...raft.histogram import SECONDS as SYNC_SECONDS
from .connections import Connections
from .samples import Certificate, Durations, Samples, family, of_node
from .series import SERIES, WITH_NAMES
from .stalls import SECONDS as STALL_SECONDS
from .stalls import Stalls

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONG_S = 5.0
"""A request that took longer is logged at level INFO even when it was not refused."""
FRESH_S = 1.0
"""Time for which a text of /metrics without names is reused: to sample holds the loop for some microseconds a group."""
ALERTED = ("INTERNAL_ERROR", "REQUEST_TIMED_OUT")
"""Codes whose first refusal must raise an alert (ops/alerts.yml). Their series exist from the start, with 0, because
increase() does not see the first sample of a new series as a rise.
"""
NO_ROUTE = "none"
"""The label ``route`` of a request without a route, or of bytes that are no HTTP request."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_TOPIC = "/v1/topics/{topic}"
_APPENDS = (
    ("POST", f"{_TOPIC}/partitions/{{partition}}/records"),
    ("POST", f"{_TOPIC}/records"),
    ("POST", "/v1/append"),
)

access_log: logging.Logger = logging.getLogger("stockade.http.access")
_log = logging.getLogger(__name__)


class Taken(Collector):
    """A collector of samples that were taken before, in the form that a registry asks for."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        """The samples. Called by the registry."""
        return self._families


def written(families: Sequence[Metric]) -> bytes:
    """``families``, and the metrics of the process, in the Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(Taken(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class Shared:
    """A text that all concurrent callers share. One is made at a time, and reused for ``fresh_s`` seconds after it was
    begun. With ``fresh_s`` 0 a caller never gets a text that was begun before its call.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]], fresh_s: float) -> None:
        self._make = make
        self._fresh_s = fresh_s
        self._latest: asyncio.Task[bytes] | None = None
        self._began_s: float | None = None
        """Monotonic time at which the latest text was begun; None: it waits for the one before it."""

    async def get(self) -> bytes:
        """The text, perhaps after a wait. Raises the errors of ``make``."""
        if self._latest is None or (self._began_s is not None and monotonic() - self._began_s >= self._fresh_s):
            self._began_s, self._latest = None, asyncio.create_task(self._after(self._latest))
        return await asyncio.shield(self._latest)

    async def _after(self, earlier: asyncio.Task[bytes] | None) -> bytes:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._began_s = monotonic()
        return await self._make()


class Metrics:
    """The counters of one application, and the metrics of its node.

    Counters are plain numbers, which ``text`` turns into samples: the library's counters take a lock at each increment.
    """

    def __init__(self, front: Front, connections: Connections, stalls: Stalls, http_tls: HttpTls | None = None) -> None:
        self.fast_path_bugs: int = 0
        """Requests whose fast path met a bug, so that their route's handler answered them."""
        self._front = front
        self._connections = connections
        self._stalls = stalls
        self._http_tls = http_tls
        self._writing = ThreadPoolExecutor(1, "metrics")
        self._texts = {
            names: Shared(partial(self._look, names=names), 0 if names else FRESH_S) for names in (False, True)
        }
        self._answers: Counter[tuple[str, str, str]] = Counter()
        self._buckets: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], float] = {}
        self._refusals: Counter[tuple[str]] = Counter({(code,): 0 for code in ALERTED})

    def answered(
        self, method: str, route: str, status: int, seconds: float, size: int, *, is_stream: bool = False
    ) -> None:
        """Count an answer of ``size`` bytes, and log it. The histogram of latencies leaves followed streams out."""
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
        self._refusals[code,] += 1

    def fast_path_bug(self, route: str) -> None:
        """Count and log the exception that is being handled: the fast path of a route must raise refusals only."""
        self.fast_path_bugs += 1
        _log.exception("the fast path of %s met a bug; the route's handler answers the request", route)

    async def state(self) -> NodeState:
        """The state of this node for GET /v1/nodes and the console: sums of what /metrics has by label."""
        service, writes = self._front.service, self._front.writes
        measures = await service.measures()
        certificates = self._certificates(measures)
        log = measures.log
        found = [buckets for where, buckets in self._buckets.items() if where in _APPENDS]
        counts = [sum(column) for column in zip(*found, strict=True)] or [0] * (len(_SECONDS) + 1)
        return NodeState(
            node_id=service.node_id,
            version=VERSION,
            at_ms=now_ms(),
            partitions=service.counts(),
            disk=DiskSpace(log.disk_free_bytes, log.disk_size_bytes, log.wal_bytes + log.segment_bytes),
            appended_records=writes.records,
            appended_bytes=writes.bytes,
            refused_writes=sum(writes.refusals.values()),
            appends=_latencies(_SECONDS, counts),
            syncs=_latencies(SYNC_SECONDS, log.syncs.counts),
            connections=len(self._connections),
            certificates={use: round(1000 * each.expires_at) for use, each in certificates.items()},
            refused_certificates=[use for use, each in certificates.items() if each.is_refused],
            doubled_by=measures.doubled_by,
        )

    async def text(self, *, names: bool) -> bytes:
        """All series in the Prometheus text format. ``names``: include those that name consumer groups or topics.
        Without them the text may be FRESH_S old, because strangers may ask as often as they like.
        """
        return await self._texts[names].get()

    async def _look(self, *, names: bool) -> bytes:
        """Take all samples, and write them in a thread, because that takes longer. The thread
        is not of the loop's pool: all of these may wait for a disk, which is when a monitor must see the metrics. A
        series without samples is written, too.
        """
        measures = await self._front.service.measures(names=names)
        samples = self._of_requests() | of_node(measures, self._certificates(measures))
        shown = ({} if series.name in WITH_NAMES and not names else samples.get(series.name, {}) for series in SERIES)
        return await asyncio.get_running_loop().run_in_executor(self._writing, written, [*map(family, SERIES, shown)])

    def _of_requests(self) -> Samples:
        front, stalls = self._front, self._stalls
        unready = {each.part for each in front.unready()}
        in_flight, writes = front.in_flight, front.writes
        return {
            "stockade_http_requests": self._answers,
            "stockade_http_request_seconds": {
                where: Durations(_SECONDS, counts, self._sums[where]) for where, counts in self._buckets.items()
            },
            "stockade_http_refusals": self._refusals,
            "stockade_http_fast_path_bugs": {(): self.fast_path_bugs},
            "stockade_http_connections": {(): len(self._connections)},
            "stockade_http_ended_connections": {(reason,): count for reason, count in self._connections.ended.items()},
            "stockade_http_in_flight_requests": {(): in_flight.requests.used},
            "stockade_http_in_flight_bytes": {
                ("bodies",): in_flight.body_bytes.used,
                ("answers",): in_flight.answer_bytes.used,
            },
            "stockade_http_followers": {(): in_flight.followers.used},
            "stockade_http_waiting_for_leader": {(): front.waiting_for_leader},
            "stockade_ready": {(what,): not unready & {"node", what} for what in ("data", "control")},
            "stockade_loop_stall_seconds": {
                ("held",): Durations(STALL_SECONDS, stalls.held, stalls.held_s),
                ("waited",): Durations(STALL_SECONDS, stalls.waited, stalls.waited_s),
            },
            "stockade_appended_records": {(): writes.records},
            "stockade_appended_bytes": {(): writes.bytes},
            "stockade_refused_writes": writes.refusals,
        }

    def _certificates(self, measures: Measures) -> dict[str, Certificate]:
        """The certificates of this node by use: ``raft`` and ``http``, as far as it has them."""
        raft, http = measures.raft, self._http_tls
        found = {}
        if raft.certificate_expires_at is not None:
            found["raft"] = Certificate(raft.certificate_expires_at, raft.is_certificate_refused)
        if http is not None and http.expires_at is not None:
            found["http"] = Certificate(http.expires_at, http.is_refused)
        return found


def _latencies(upper: Sequence[float], counts: Sequence[int]) -> Latencies:
    return Latencies([round(1e6 * bound) for bound in upper], list(counts))


@dataclass
class Observation:
    """A request as the access log and the metrics see it. ``route`` is a template. ``is_stream``: a followed stream,
    whose duration is no latency.
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

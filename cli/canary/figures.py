"""The metrics of a canary, and the HTTP server from which Prometheus scrapes them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server

from ...http_api.request.series import Series
from .verdict import Verdict

TAKEOVER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SINCE, PROOFS, VIOLATIONS, UNPROVEN, TAKEOVERS = SERIES = (
    Series(
        "stockade_canary_seconds_since_proof",
        "gauge",
        "seconds",
        "Since the last proof that a replaced writer is refused; before the first one, since the canary's start.",
    ),
    Series("stockade_canary_proofs", "counter", "rounds", "Rounds that were a proof."),
    Series(
        "stockade_canary_violations",
        "counter",
        "rounds",
        "Rounds that showed a write of a replaced writer in the log, or an answer that says that it is there.",
    ),
    Series(
        "stockade_canary_unproven", "counter", "rounds", "Rounds that showed neither, by what was missing.", ("reason",)
    ),
    Series(
        "stockade_canary_takeover_seconds",
        "histogram",
        "seconds",
        "From the order to take a partition over until the grant is in force.",
    ),
)


class Figures:
    """Counts verdicts in Prometheus metrics; ``monotonic`` is a clock in seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = CollectorRegistry()
        self.violations: int = 0
        self._monotonic = monotonic
        self._proof_at = monotonic()
        here = self.registry
        Gauge(SINCE.name, SINCE.meaning, registry=here).set_function(lambda: self._monotonic() - self._proof_at)
        self._proofs = Counter(PROOFS.name, PROOFS.meaning, registry=here)
        self._violations = Counter(VIOLATIONS.name, VIOLATIONS.meaning, registry=here)
        self._unproven = Counter(UNPROVEN.name, UNPROVEN.meaning, UNPROVEN.labels, registry=here)
        self._takeovers = Histogram(TAKEOVERS.name, TAKEOVERS.meaning, registry=here, buckets=TAKEOVER_SECONDS)

    def count(self, verdict: Verdict, takeover_s: float | None) -> None:
        """Count a round that has ended; ``takeover_s`` None: it ended before its takeover was measured."""
        if takeover_s is not None:
            self._takeovers.observe(takeover_s)
        match verdict.judged:
            case "proof":
                self._proofs.inc()
                self._proof_at = self._monotonic()
            case "violation":
                self._violations.inc()
                self.violations += 1
            case "unproven":
                self._unproven.labels(verdict.reason).inc()

    @contextmanager
    def served(self, host: str, port: int) -> Iterator[int]:
        """Serve the metrics at http://host:port/metrics during the block; yields the port. ``port`` 0: a free one.
        Raises OSError.
        """
        server, thread = start_http_server(port, host, self.registry)
        try:
            yield int(server.server_port)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

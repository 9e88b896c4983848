"""The one configuration object of the client: defaults, units and bounds, checked whole before anything starts."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Self, get_args
from urllib.parse import urlsplit

from .access import Access

OnError = Literal["halt_partition", "continue"]

DEFAULT_BOOTSTRAP = ("http://127.0.0.1:7101", "http://127.0.0.1:7102", "http://127.0.0.1:7103")
"""The nodes of a cluster that was started on this machine with default ports."""

BOUNDS: dict[str, tuple[int, int]] = {
    "connect_timeout_ms": (10, 60_000),
    "request_timeout_ms": (100, 300_000),
    "standstill_ms": (100, 300_000),
    "delivery_timeout_ms": (100, 3_600_000),
    "linger_ms": (0, 60_000),
    "send_timeout_ms": (0, 3_600_000),
    "batch_records_max": (1, 100_000),
    "batch_bytes_max": (1_024, 16 << 20),
    "inflight_batches_max": (1, 5),
    "buffer_bytes_max": (1_024, 16 << 30),
    "session_ttl_ms": (1_000, 300_000),
    "retry_backoff_ms": (1, 60_000),
    "retry_backoff_ms_max": (1, 60_000),
    "fetch_bytes_max": (1, 64 << 20),
    "fetch_wait_ms": (0, 60_000),
    "connections_max": (1, 10_000),
}
"""Least and greatest value of every number below, both allowed."""

BOOTSTRAP_URLS_MAX = 100
_TOKEN = re.compile(r"[!-~]{1,4096}")


class InvalidConfig(ValueError):
    """``faults`` has one sentence for each thing that is wrong."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client reaches the cluster and how patient it is. Raises InvalidConfig with every fault at once.

    - ``bootstrap``: base URLs of some nodes, tried in turn; the others are learned from the cluster.
    - ``connect_timeout_ms``: for one connection attempt. A node that cannot be connected to got nothing.
    - ``request_timeout_ms``: for one attempt of one request, beside what the request asks the cluster to wait. When it
      ends, the outcome is unknown.
    - ``standstill_ms``: when a partition's leader has not answered for so long, beside what it was asked to wait, the
      other nodes are asked who leads. If it is another one by now, the attempt ends with an unknown outcome, and the
      next one goes there.
    - ``delivery_timeout_ms``: from ``send`` to the answer over all attempts; also the limit of repeating any other
      call. At least ``linger_ms + request_timeout_ms``, so that one whole attempt fits.
    - ``send_timeout_ms``: how long ``send`` waits for room in the buffer before it raises BufferFull.
    - ``linger_ms``: how long a batch that is not full waits for more records. 0: until there is room in flight.
    - ``batch_records_max``, ``batch_bytes_max``: a batch is full at this size, or where its topic's ``max_batch_bytes``
      ends. A longer record travels alone.
    - ``inflight_batches_max``: batches of one partition under way at once. The server remembers five, never more.
    - ``buffer_bytes_max``: records waiting for their answer; ``send`` waits while it is full.
    - ``session_ttl_ms``: sessions for exclusive work; renewed at a third of it.
    - ``retry_backoff_ms``, ``retry_backoff_ms_max``: the pause before a repetition doubles from one to the other.
    - ``fetch_bytes_max``: asked for at once by a consumer. ``fetch_wait_ms``: how long a follower's request stays
      open at the log end.
    - ``connections_max``: open connections of one client, over all nodes.
    - ``token``: the bearer token of a cluster that wants one; by default what the environment variable STOCKADE_TOKEN
      holds. It is sent to every node, in clear over http://.
    - ``ca``, ``certificate``, ``key``: PEM files for addresses with ``https``: the authorities to trust in place of the
      system's, and what proves who the client is, where it is asked.
    - ``on_error``: what a producer does with a partition after a batch has failed for good. ``halt_partition``: all
      behind it fails as well, and nothing more is taken until ``recover``. ``continue``: only that batch fails, and
      what comes after it is sent; order is kept, but there is a hole that the application has to live with.
    """

    bootstrap: tuple[str, ...] = DEFAULT_BOOTSTRAP
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 30_000
    standstill_ms: int = 1_000
    delivery_timeout_ms: int = 120_000
    linger_ms: int = 5
    send_timeout_ms: int = 120_000
    batch_records_max: int = 10_000
    batch_bytes_max: int = 1 << 20
    inflight_batches_max: int = 5
    buffer_bytes_max: int = 64 << 20
    session_ttl_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_ms_max: int = 1_000
    fetch_bytes_max: int = 4 << 20
    fetch_wait_ms: int = 10_000
    connections_max: int = 256
    on_error: OnError = "halt_partition"
    token: str | None = field(default_factory=lambda: os.environ.get("STOCKADE_TOKEN") or None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        faults = [*_bootstrap_faults(self.bootstrap), *_bound_faults(self)]
        if self.on_error not in get_args(OnError):
            faults.append(f"on_error: {self.on_error!r} is none of {', '.join(get_args(OnError))}")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            faults.append("token: empty, or with characters that no header may have")
        faults += _relation_faults(self) if not faults else []
        faults += self.access().faults()
        if faults:
            raise InvalidConfig(faults)

    def access(self) -> Access:
        """The part of it that is about trust."""
        return Access(token=self.token, ca=self.ca, certificate=self.certificate, key=self.key)

    @classmethod
    def of(cls, bootstrap: "Bootstrap") -> Self:
        """From what a user has at hand: one URL, several (also separated by commas), or a whole config."""
        if isinstance(bootstrap, cls):
            return bootstrap
        urls = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        assert not isinstance(urls, ClientConfig)
        return cls(bootstrap=tuple(url.strip().rstrip("/") for url in urls))


Bootstrap = str | Iterable[str] | ClientConfig


def _bootstrap_faults(urls: tuple[str, ...]) -> Iterator[str]:
    if not 1 <= len(urls) <= BOOTSTRAP_URLS_MAX:
        yield f"bootstrap: between 1 and {BOOTSTRAP_URLS_MAX} URLs are needed, not {len(urls)}"
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            yield f"bootstrap: {url!r} is not a base URL such as http://127.0.0.1:7101"


def _bound_faults(config: ClientConfig) -> Iterator[str]:
    for name, (least, greatest) in BOUNDS.items():
        value = getattr(config, name)
        if not isinstance(value, int) or not least <= value <= greatest:
            yield f"{name}: {value!r} is not an integer from {least} to {greatest}"


def _relation_faults(config: ClientConfig) -> Iterator[str]:
    if config.delivery_timeout_ms < config.linger_ms + config.request_timeout_ms:
        yield "delivery_timeout_ms: less than linger_ms + request_timeout_ms, so no whole attempt fits"
    if config.buffer_bytes_max < config.batch_bytes_max:
        yield "buffer_bytes_max: less than batch_bytes_max, so not even one batch fits"
    if config.retry_backoff_ms_max < config.retry_backoff_ms:
        yield "retry_backoff_ms_max: less than retry_backoff_ms"

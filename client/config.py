"""The client's configuration: defaults, units and bounds, checked as a whole before a connection is made.

`Credentials` holds secrets: neither messages nor ``repr`` show the token.
"""

import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field, fields
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from ..partition.log.fsutil import Stamp, stamp

_log = logging.getLogger(__name__)


TOKEN_LOOK_S = 1.0
"""Least time between two looks at a token's file, which may be in a file system that answers slowly."""
_TOKEN = re.compile(r"[!-~]{1,4096}")


@dataclass(slots=True)
class _Kept:
    """The token that was read from a file last, and the file as it was then."""

    token: str | None = None
    stamp: Stamp = ()
    refused: Stamp | None = None
    looked_s: float = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How the client proves its identity, and which authorities it trusts. Everything is optional.

    - ``token``: bearer token, sent with every request in the header Authorization.
    - ``token_file``: file with the token, in place of ``token``. While it cannot be read, or has no token, the last one
      is used.
    - ``ca``: PEM file of the authorities that sign nodes' certificates (``https``); None: the system's.
    - ``certificate``, ``key``: PEM files of the client's certificate; ``key`` None: it is in the first file.

    New connections use what the files have by then, requests the token that its file had TOKEN_LOOK_S ago, or later.
    """

    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    _kept: _Kept = field(default_factory=_Kept, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Callable[..., "Credentials"], tuple[()]]:
        """A copy looks at the token's file itself: its process may be on another machine, and has another clock."""
        return partial(Credentials, **{each.name: getattr(self, each.name) for each in fields(self) if each.init}), ()

    def faults(self) -> Iterator[str]:
        """A sentence for each error."""
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        unreadable = [f"{name}: {path} cannot be read" for name, path in files.items() if path and not _readable(path)]
        yield from unreadable
        if self.token_file:
            try:
                _ = _token_in(self.token_file)
            except (OSError, ValueError) as error:
                yield f"token_file: {self.token_file} cannot be used: {_why(error)}"
        if self.key and not self.certificate:
            yield "key: is of no use without certificate"
        elif self.has_files and not unreadable:
            try:
                self.context()
            except OSError as error:
                yield f"ca, certificate, key: {error}"

    @property
    def has_files(self) -> bool:
        """Whether a TLS context must be made of files."""
        return bool(self.ca or self.certificate)

    def headers(self) -> dict[str, str]:
        """The headers that every request carries."""
        token = self.token_now()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def token_now(self) -> str | None:
        """The token, which its file may have changed. None: there is none."""
        if not self.token_file:
            return self.token
        kept, now_s = self._kept, time.monotonic()
        if now_s - kept.looked_s >= TOKEN_LOOK_S:
            kept.looked_s, found = now_s, stamp(self.token_file)
            if found != kept.stamp:
                try:
                    kept.token, kept.stamp, kept.refused = _token_in(self.token_file), found, None
                except (OSError, ValueError) as error:
                    if found != kept.refused:
                        _log.warning("token_file cannot be used, the token before is: %s", _why(error))
                    kept.refused = found
        return kept.token

    def context(self) -> ssl.SSLContext:
        """The TLS context, which follows changes of the files. Raises OSError for a file that cannot be read or has
        other content.
        """
        return _RenewedContext(self)

    def context_now(self, password: str | None = None) -> ssl.SSLContext:
        """A TLS context of what the files have now; raises as `context`. ``password``: of the key; None: it is asked
        for on the terminal, if the key needs one.
        """
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password)
        return context

    def stamps(self) -> list[Stamp]:
        """What changes with the files: certificates are renewed while a program runs."""
        return [stamp(path) for path in (self.ca, self.certificate, self.key) if path]


class _RenewedContext(ssl.SSLContext):
    """A TLS context whose new connections use what the files have by then. Files that do not go together, such as a new
    certificate before its key has come, leave what was before in force.
    """

    def __new__(cls, credentials: Credentials) -> Self:
        """``credentials``: the files."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._stamps = credentials.stamps()
        self._now = credentials.context_now()

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """TLS for a connection of an event loop."""
        return self._renewed().wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """TLS for a socket."""
        return self._renewed().wrap_socket(*args, **kwargs)

    def _renewed(self) -> ssl.SSLContext:
        stamps = self._credentials.stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._now = self._credentials.context_now(password="")  # never ask on a terminal  # nosec B106
            except OSError as error:
                if not isinstance(error, ssl.SSLError):
                    self._stamps = []  # not read, say for want of a descriptor: the next connection tries again
                _log.warning("ca, certificate or key have changed and cannot be used, the ones before are: %s", error)
        return self._now


def _token_in(path: str) -> str:
    """The token in a file. Raises OSError, ValueError."""
    token = Path(path).read_text(encoding="utf-8", errors="replace").strip()
    if not _TOKEN.fullmatch(token):
        raise ValueError("it is empty, or has characters that no header may have")
    return token


def _why(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _readable(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.R_OK)


OnError = Literal["halt_partition", "continue"]
OnBusy = Literal["wait", "fail"]
Compression = Literal["none", "lz4", "zstd"]

DEFAULT_BOOTSTRAP = ("http://127.0.0.1:7101", "http://127.0.0.1:7102", "http://127.0.0.1:7103")
"""The nodes of a local cluster with default ports."""


def default_bootstrap() -> Sequence[str]:
    """The environment variable STOCKADE_URL, or the nodes of a local cluster."""
    return os.environ.get("STOCKADE_URL") or DEFAULT_BOOTSTRAP


BOUNDS: dict[str, tuple[int, int]] = {
    "connect_timeout_ms": (10, 60_000),
    "request_timeout_ms": (100, 300_000),
    "standstill_ms": (100, 300_000),
    "delivery_timeout_ms": (100, 3_600_000),
    "linger_ms": (0, 60_000),
    "send_timeout_ms": (0, 3_600_000),
    "flush_records": (0, 100_000),
    "flush_bytes": (0, 16 << 20),
    "batch_records_max": (1, 100_000),
    "batch_bytes_max": (1_024, 16 << 20),
    "inflight_batches_max": (1, 5),
    "buffer_bytes_max": (1_024, 16 << 30),
    "session_ttl_ms": (1_000, 300_000),
    "retry_backoff_ms": (1, 60_000),
    "retry_backoff_ms_max": (1, 60_000),
    "fetch_bytes_max": (1, 64 << 20),
    "fetch_wait_ms": (0, 60_000),
    "connections_max": (2, 10_000),
}
"""Least and greatest allowed value of each number of ClientConfig."""

BOOTSTRAP_URLS_MAX = 100
_URL_TEXT = re.compile(r"[^\s?#]+")


class InvalidConfig(ValueError):
    """The configuration has errors. ``faults``: one sentence for each of them."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client reaches the cluster, its timeouts and its bounds. Raises InvalidConfig with every error at once.

    Units are in the names: ``_ms`` milliseconds, ``_bytes_`` bytes. BOUNDS has the least and greatest values.

    - ``bootstrap``: base URLs of some nodes, tried in turn; the client learns the others from the cluster, after its
      first answered request and again each minute in which it is used. One text, or several; each may have several
      URLs, separated by commas. It becomes a tuple of single URLs; ``localhost:7101`` without a scheme means http. By
      default the content of the environment variable STOCKADE_URL, or else DEFAULT_BOOTSTRAP.
    - ``connect_timeout_ms``: the longest attempt to connect. Nothing was sent to a node that cannot be connected to.
    - ``request_timeout_ms``: the longest attempt of one request, without the time that it asks the node to wait. After
      it the outcome is unknown.
    - ``standstill_ms``: when a partition's leader has not answered for this long, without the time that it was asked to
      wait, the client asks the other nodes for the leader. If they name another one, the attempt ends with an unknown
      outcome, and the next attempt goes to that leader.
    - ``delivery_timeout_ms``: the longest time from ``send`` to the outcome, over all attempts; also how long any other
      call is repeated. At least ``linger_ms + request_timeout_ms``, so that one whole attempt fits.
    - ``send_timeout_ms``: how long ``send`` waits for room in the buffer before it raises BufferFull.
    - ``linger_ms``: how long a batch that is not full waits for more records. 0: only until there is room in flight.
    - ``flush_records``, ``flush_bytes``: a batch of this size no longer waits for ``linger_ms``; while there is no room
      in flight it still takes records. 0: no such size. (Sarama's Flush.Messages and Flush.Bytes.)
    - ``batch_records_max``, ``batch_bytes_max``: the size of a full batch; if its topic's ``max_batch_bytes`` is less,
      that counts. A longer record is sent alone.
    - ``inflight_batches_max``: batches of one partition in flight at once; five at most, since a partition remembers
      five batches of each producer.
    - ``buffer_bytes_max``: bytes of records without an outcome; ``send`` waits while the buffer is full.
    - ``session_ttl_ms``: the ttl of sessions, which are renewed at a third of it.
    - ``retry_backoff_ms``, ``retry_backoff_ms_max``: the first and the longest pause before a repetition. The pause
      doubles from one repetition to the next.
    - ``fetch_bytes_max``: the most bytes of a consumer's fetch. A read of many partitions asks for less: for 64 MiB in
      all, but at least 64 KiB each. What compressed batches have beyond 16 times that, unpacked, is left to the next
      fetch. ``fetch_wait_ms``: how long a fetch waits at the log's end.
    - ``connections_max``: open connections of one client, over all nodes. Requests that ask a node to wait (fetches at
      a log's end, tickets) leave 16 connections free (a quarter, if there are fewer than 64). Fetches beyond three
      quarters of the rest wait in common, with one request for each topic and leader.
    - ``token``: bearer token; by default the content of the environment variable STOCKADE_TOKEN. The client sends it to
      every node, unencrypted over http://. With an https:// address in ``bootstrap``, the client asks no node without
      TLS, except the http:// addresses that ``bootstrap`` lists.
    - ``token_file``: file with the token, in place of ``token``; requests carry what it has by then, so that a token is
      replaced without a restart of the program.
    - ``ca``, ``certificate``, ``key``: PEM files for ``https``, see `Credentials`. They may be replaced at any time.
    - ``on_error``: what a producer does after a batch of a partition has failed for good. "halt_partition": the batches
      behind it fail as well, and the partition takes no records until ``recover``. "continue": only that batch fails;
      later ones are sent in order, and the log has a gap where it would be.
    - ``on_busy``: what a producer does with records without a fence for a partition whose slot another session holds.
      "wait": it sends them again until the slot is free, or ``delivery_timeout_ms`` has passed. "fail": they fail at
      once with ProducerBusy, which names the holder, and ``on_error`` decides about the records behind them.
    - ``compression``: how a producer compresses its batches, which are stored and served as they come: "none", "lz4" or
      "zstd". The bounds of a batch are those of its uncompressed bytes. (Sarama's Compression, Kafka's
      compression.type.)
    """

    bootstrap: Sequence[str] = field(default_factory=default_bootstrap)
    connect_timeout_ms: int = 3_000
    request_timeout_ms: int = 30_000
    standstill_ms: int = 1_000
    delivery_timeout_ms: int = 120_000
    linger_ms: int = 5
    flush_records: int = 0
    flush_bytes: int = 0
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
    on_busy: OnBusy = "wait"
    compression: Compression = "none"
    token: str | None = field(default_factory=lambda: os.environ.get("STOCKADE_TOKEN") or None, repr=False)
    token_file: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    acks: InitVar[object] = "all"
    idempotent: InitVar[object] = True
    retries_max: InitVar[object] = None

    def __post_init__(self, acks: object, idempotent: object, retries_max: object) -> None:
        object.__setattr__(self, "bootstrap", base_urls(self.bootstrap))
        faults = [
            *_gate_faults(acks, idempotent, retries_max),
            *_bootstrap_faults(self.bootstrap),
            *_bound_faults(self),
        ]
        for name, choices in (("on_error", OnError), ("on_busy", OnBusy), ("compression", Compression)):
            if getattr(self, name) not in get_args(choices):
                faults.append(f"{name}: {getattr(self, name)!r} is none of {', '.join(get_args(choices))}")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            faults.append("token: empty, or with characters that no header may have")
        faults += _relation_faults(self) if not faults else []
        faults += self.credentials().faults()
        if faults:
            raise InvalidConfig(faults)

    def credentials(self) -> Credentials:
        """Token and files for TLS."""
        names = ("token", "token_file", "ca", "certificate", "key")
        return Credentials(**{name: getattr(self, name) for name in names})

    @classmethod
    def of(cls, bootstrap: "Bootstrap | None") -> Self:
        """The configuration for one URL, or several (also separated by commas), with all other defaults; a ClientConfig
        as it is. None: the defaults alone.
        """
        if isinstance(bootstrap, cls):
            return bootstrap
        assert not isinstance(bootstrap, ClientConfig)
        return cls() if bootstrap is None else cls(bootstrap=base_urls(bootstrap))


Bootstrap = str | Iterable[str] | ClientConfig


def base_urls(given: Iterable[str]) -> tuple[str, ...]:
    """Each URL by itself, without the spaces around it and the slash at its end. ``localhost:7101`` means http."""
    texts = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    pieces = (text.split(",") if isinstance(text, str) else [text] for text in texts)
    return tuple(
        _with_scheme(url.strip().rstrip("/")) if isinstance(url, str) else url for urls in pieces for url in urls
    )


def _with_scheme(address: str) -> str:
    return f"http://{address}" if _HOST_AND_PORT.fullmatch(address) else address


def is_downgrade(node: str, bootstrap: Sequence[str]) -> bool:
    """Whether ``node`` has no TLS, although ``bootstrap`` has an ``https`` address and does not list ``node``."""
    if urlsplit(node).scheme == "https" or node.rstrip("/") in bootstrap:
        return False
    return any(urlsplit(url).scheme == "https" for url in bootstrap)


_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d+")


def _bootstrap_faults(urls: Sequence[str]) -> Iterator[str]:
    if not 1 <= len(urls) <= BOOTSTRAP_URLS_MAX:
        yield f"bootstrap: between 1 and {BOOTSTRAP_URLS_MAX} URLs are needed, not {len(urls)}"
    for url in urls:
        if not _is_base_url(url):
            yield f"bootstrap: {url!r} is not a base URL such as http://127.0.0.1:7101"


def _is_base_url(url: object) -> bool:
    if not isinstance(url, str) or not _URL_TEXT.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no such port, or half an IPv6 address
        return False


def _gate_faults(acks: object, idempotent: object, retries_max: object) -> Iterator[str]:
    """A sentence for each setting that would cost idempotence or order: no quiet downgrade (SEMANTICS 9.15)."""
    if acks not in ("all", -1):
        yield f"acks: {acks!r} is not offered: every append is stored by a majority before it is answered (acks=all)"
    if idempotent is not True:
        yield (
            f"idempotent: {idempotent!r} is not offered: a producer is always idempotent, since without sequence"
            " numbers a repetition could store a batch twice"
        )
    if retries_max is not None:
        yield (
            f"retries_max: {retries_max!r} is not offered: a batch is repeated until delivery_timeout_ms is over; set"
            " that, and retry_backoff_ms for the pauses"
        )


def _bound_faults(config: ClientConfig) -> Iterator[str]:
    for name, (least, greatest) in BOUNDS.items():
        value = getattr(config, name)
        if not isinstance(value, int) or not least <= value <= greatest:
            yield f"{name}: {value!r} is not an integer from {least} to {greatest}"


def _relation_faults(config: ClientConfig) -> Iterator[str]:
    if config.delivery_timeout_ms < config.linger_ms + config.request_timeout_ms:
        yield "delivery_timeout_ms: less than linger_ms + request_timeout_ms, so no whole attempt fits"
    for trigger, full in (("flush_records", "batch_records_max"), ("flush_bytes", "batch_bytes_max")):
        if getattr(config, trigger) > getattr(config, full):
            yield f"{trigger}: more than {full}, so it has no effect"
    if config.buffer_bytes_max < config.batch_bytes_max:
        yield "buffer_bytes_max: less than batch_bytes_max, so not even one batch fits"
    if config.retry_backoff_ms_max < config.retry_backoff_ms:
        yield "retry_backoff_ms_max: less than retry_backoff_ms"

"""HTTP to the cluster's nodes: the only file of the client that uses aiohttp.

It owns the connections and the list of known nodes, and never repeats a request that may have had an effect: it tries
another node only when nothing was sent, or after the answer 421 (not the leader, ask there). Any other answer or error
goes to the caller. A lost answer is RequestTimedOut: an unknown outcome, not a failure.
"""

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from math import inf
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut, StockadeError
from ..config import ClientConfig, is_downgrade
from ..errors import (
    ClientClosed,
    ClusterUnreachable,
    PlaintextRefused,
    Source,
    UnreadableAnswer,
    refusal_of,
    unanswered,
)
from ..loop_affinity import LoopAffinity
from .outage import asked, met
from .trace import trace_headers

LEADER_HINTS_MAX = 3
"""How many 421 answers one request follows before it is refused."""
NODES_MAX = 1_000
"""How many nodes are remembered, those of the bootstrap list included."""
NODE_PAUSE_S = 1.0
"""How long a node that could not be connected to, or knows no leader, is tried last."""
NODE_PAUSE_S_MAX = 30.0
"""The pause doubles up to this with each further failure to connect: an address of the bootstrap list may be gone."""
SILENT_PAUSE_S = 10.0
"""How long a node that took a request and did not answer is tried last: each new attempt costs a whole timeout."""
JOINED_BYTES_MAX = 64 << 10
"""Parts of a body are joined up to this length: many short parts cost more to send singly, long parts to copy."""
KEPT_FREE_MAX = 16
"""Connections, of ``connections_max``, that requests which ask a node to wait leave free, so that a session's renewal
does not wait behind such requests. With fewer than 64 connections it is a quarter of them, at least one.
"""
ANSWER_BYTES_MAX = 128 << 20
"""Longest answer read; a fetch asks for at most half of it."""

_log = logging.getLogger(__name__)


class NoNode(OSError):
    """The address takes connections and gives no HTTP answer; nothing that could have an effect was sent to it."""


_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, NoNode)
"""The errors that mean that there was no connection to the node, so that it got nothing."""
_PROVE = "/readyz"
"""Any answer to this shows that the address is one for HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer to a request with ``method`` at ``node``."""

    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray
    method: str
    node: str

    @property
    def leader(self) -> str | None:
        """Base URL of the leader that decided, for the next request of this kind; None if the answer names none."""
        return self.headers.get("Stockade-Leader") or None

    @property
    def source(self) -> Source:
        """Where the answer came from, for the error of an answer that cannot be read."""
        return Source(self.method, self.node, self.status, self.headers.get("Content-Type"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``node``: base URL of the node to try first; with ``only_node``, the only one to try.

    ``timeout_ms`` None: the configuration's ``request_timeout_ms``. ``silent_ms``: after so long without an answer,
    other requests try the node last; this one waits on. ``wait_ms``: how long the request asks the node to wait, added
    to the timeout. ``body``: one piece, or parts, which are not copied together when they are long.
    ``on_written``: called each time the whole body was handed to a connection. ``on_piece``: called with each piece of
    a 2xx answer's body as it comes; the body of the Answer is empty then.
    """

    method: str
    path: str
    params: Mapping[str, str | int | Sequence[str]] | None = None
    headers: Mapping[str, str] | None = None
    body: bytes | tuple[bytes, ...] = b""
    node: str | None = None
    only_node: bool = False
    timeout_ms: int | None = None
    silent_ms: int | None = None
    wait_ms: int = 0
    on_written: Callable[[], None] | None = None
    on_piece: Callable[[bytes], None] | None = None


class Transport:
    """Connections to the nodes of one cluster, for one event loop. Use it in ``async with``, or ``close`` it."""

    _session: aiohttp.ClientSession | None = None

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._credentials = config.credentials()
        self._nodes = dict.fromkeys(config.bootstrap, 0.0)  # base URL -> monotonic time until which it is tried last
        self._unreached = Counter[str]()
        """Failures to connect, by base URL, since the node last took a connection."""
        self.affinity: LoopAffinity = LoopAffinity()
        self._unproven = set(config.bootstrap)
        """Base URLs of the application that the cluster has not named and that have given no HTTP answer so far."""
        kept_free = max(1, min(KEPT_FREE_MAX, config.connections_max // 4))
        waits_max = config.connections_max - kept_free
        self._places_to_wait = asyncio.Semaphore(waits_max)
        self._waiting = 0  # requests that have such a place, or stand in the queue for one
        self._waiting_with_room_max = max(1, waits_max - max(1, waits_max // 4))
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    def __del__(self) -> None:
        """Tell of a client that was forgotten: the library's own warning names a session that no application has."""
        if self._session is not None and not self._session.closed and not self.affinity.is_forked:
            _log.warning("a Client, Consumer or Producer was not closed: use it in a `with` block, or call its `close`")

    @property
    def nodes(self) -> list[str]:
        """Base URLs of the known nodes, in the order in which a request tries them now: those without a pause, then
        those whose pause ends first.
        """
        now_s = time.monotonic()
        return sorted(self._nodes, key=lambda url: max(self._nodes[url], now_s))

    @property
    def has_room_to_wait(self) -> bool:
        """Whether a request that asks a node to wait gets a connection now, and leaves a quarter of those that may wait
        to the requests that come back from a wait elsewhere.
        """
        return self._waiting < self._waiting_with_room_max

    def learn(self, urls: Iterable[str]) -> None:
        """Remember the nodes that an answer of the cluster names, beside the bootstrap list. A node that it does not
        name is forgotten only if it could not be connected to either: the node that answered may not know of all.

        Left out are bad base URLs, base URLs without TLS after a bootstrap with TLS, and nodes beyond NODES_MAX.
        """
        named = [url.rstrip("/") for url in urls]
        self._unproven.difference_update(named)
        gone = {url for url in self._unreached if url not in self._config.bootstrap and url not in named}
        nodes = {url: until_s for url, until_s in self._nodes.items() if url not in gone}
        for url in named:
            is_usable = urlsplit(url).scheme in ("http", "https") and not is_downgrade(url, self._config.bootstrap)
            if url not in nodes and len(nodes) < NODES_MAX and is_usable:
                nodes[url] = 0.0
        self._nodes = nodes
        for url in gone:
            del self._unreached[url]

    def avoid(self, url: str) -> None:
        """Try this node last for SILENT_PAUSE_S: it takes requests and does not answer."""
        self._pause(url, SILENT_PAUSE_S)

    async def close(self) -> None:
        """Close all connections; the outcome of requests in flight is unknown. Raises as `LoopAffinity.enter`."""
        if self._session is not None:
            self.affinity.enter()
        self._is_closed = True  # first: a request that begins meanwhile finds the client closed, not a fault of aiohttp
        if self._session is not None:
            await self._session.close()

    async def request(self, request: Request) -> Answer:
        """The 2xx answer to ``request``. Raises the refusal; RequestTimedOut when no answer came, see `unanswered`."""
        self.affinity.enter()
        node = request.node
        for hints in range(LEADER_HINTS_MAX + 1):
            try:
                return await self._try_nodes(request, node)
            except NotLeaderOrFollower as error:
                node = error.fields.get("leader")
                if node is None or request.only_node or hints == LEADER_HINTS_MAX:
                    raise
        raise AssertionError("unreachable: the last round returns or raises")

    async def _try_nodes(self, request: Request, first: str | None) -> Answer:
        candidates = [first] if first and request.only_node else [*([first] if first else []), *self.nodes]
        reasons, cause = {}, None
        for node in dict.fromkeys(candidates):
            try:
                if node in self._unproven and request.method != "GET":
                    await self._prove(node)
                with self._avoided_after(request.silent_ms, node) if request.silent_ms else nullcontext():
                    return await self._attempt(request, node)
            except _NOT_SENT as error:
                self._not_reached(node)
                reasons[node] = _why_not(error)
                met(node, reasons[node])
                cause = error
        tried = ", ".join(f"{node} ({why})" for node, why in reasons.items())
        raise ClusterUnreachable(f"no node answers: {tried}") from cause

    async def _prove(self, node: str) -> None:
        """Ask whether an address that the application gave is a node, before it gets what may have an effect.

        Otherwise the silence of a wrong port would leave the outcome unknown.
        """
        timeout_ms = self._config.connect_timeout_ms
        try:
            _ = await self._attempt(Request(method="GET", path=_PROVE, timeout_ms=timeout_ms), node)
        except RequestTimedOut as error:
            raise NoNode(f"no answer within {timeout_ms} ms") from error
        except StockadeError:
            pass  # it is a node, though not ready

    async def _attempt(self, request: Request, node: str) -> Answer:
        if is_downgrade(node, self._config.bootstrap):
            raise PlaintextRefused(node)
        timeout_ms = (request.timeout_ms or self._config.request_timeout_ms) + request.wait_ms
        asked(node)
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000, sock_connect=self._config.connect_timeout_ms / 1000)
        try:
            async with (
                self._place_to_wait() if request.wait_ms else nullcontext(),
                self._open_session().request(
                    request.method,
                    node + request.path,
                    params=request.params,
                    headers={**self._credentials.headers(), **(request.headers or {}), **trace_headers()},
                    data=_Body(request.body, request.on_written) if request.body else None,
                    timeout=timeout,
                    allow_redirects=False,
                    middlewares=(sent_once(),) if request.method in _REPEATED else None,
                ) as response,
            ):
                is_success = response.status < HTTPStatus.MULTIPLE_CHOICES
                body = await _read(response, request.on_piece if is_success else None)
        except _NOT_SENT:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if node in self._unproven and request.method == "GET" and not isinstance(error, TimeoutError):
                raise NoNode("it gives no HTTP answer: is this the port for clients, not the one for Raft?") from error
            self.avoid(node)
            reason = f"no answer within {timeout_ms} ms" if isinstance(error, TimeoutError) else f"{error!r}"
            met(node, reason)
            raise unanswered(request.method, f"{node}: {reason}") from error
        self._reached(node)
        if not is_success:
            source = Source(request.method, node, response.status, response.headers.get("Content-Type"))
            refusal = refusal_of(source, body)
            met(node, f"{refusal.code}: {refusal.detail}")
            if _knows_no_leader(refusal) or isinstance(refusal, UnreadableAnswer):
                self._pause(node)
            raise refusal
        return Answer(response.status, response.headers, body, request.method, node)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ClientClosed
        if self._session is None:
            trusted = self._credentials.context() if self._credentials.has_files else True
            connector = aiohttp.TCPConnector(limit=self._config.connections_max, ssl=trusted)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    @asynccontextmanager
    async def _place_to_wait(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            async with self._places_to_wait:
                yield
        finally:
            self._waiting -= 1

    def _reached(self, node: str) -> None:
        self._unproven.discard(node)
        if self._unreached.pop(node, 0):
            self._nodes[node] = 0.0

    def _not_reached(self, node: str) -> None:
        """Note a failure to connect. Of requests that fail side by side, only the first counts: the pause has begun."""
        if self._nodes.get(node, inf) <= time.monotonic():
            self._pause(node, min(NODE_PAUSE_S * 2 ** min(self._unreached[node], 10), NODE_PAUSE_S_MAX))
            self._unreached[node] += 1

    @contextmanager
    def _avoided_after(self, silent_ms: int, node: str) -> Iterator[None]:
        """When the block lasts longer than ``silent_ms``, `avoid` the node meanwhile."""
        timer = asyncio.get_running_loop().call_later(silent_ms / 1000, self.avoid, node)
        try:
            yield
        finally:
            timer.cancel()

    def _pause(self, node: str, pause_s: float = NODE_PAUSE_S) -> None:
        if node in self._nodes:
            self._nodes[node] = time.monotonic() + pause_s


_REPEATED = ("PUT", "DELETE")
"""Methods that change something and that aiohttp, as it does with GET, sends a second time by itself."""


def sent_once() -> aiohttp.ClientMiddlewareType:
    """A middleware that keeps aiohttp from sending one PUT or DELETE again when the connection ends before the answer:
    the second answer would say nothing of the first request, which may have been carried out (404 for what it deleted).
    """
    was_sent = False

    async def send(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        nonlocal was_sent
        if was_sent:
            raise aiohttp.ServerDisconnectedError
        was_sent = True
        return await handler(request)

    return send


class _Body(aiohttp.Payload):
    """A body that reports when it was handed to the connection.

    A short one is sent at once with the headers, which aiohttp joins with the first part.
    """

    def __init__(self, value: bytes | tuple[bytes, ...], on_written: Callable[[], None] | None) -> None:
        super().__init__(None)
        self._parts = _joined(value) if isinstance(value, tuple) else [value]
        self._bytes = sum(map(len, self._parts))
        self._on_written = on_written

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return self._bytes

    @property
    def autoclose(self) -> bool:
        """There is no file to close."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """As text, for aiohttp's logs."""
        return b"".join(self._parts).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Hand the bytes to the connection; waits while its buffer is full."""
        for part in self._parts:
            await writer.write(part)
        if self._on_written is not None:
            self._on_written()


def _joined(pieces: Iterable[bytes]) -> list[bytes]:
    """The bytes of ``pieces`` in fewer parts, each of one piece or of at most JOINED_BYTES_MAX bytes."""
    parts: list[bytes] = []
    some: list[bytes] = []
    size = 0
    for piece in pieces:
        if some and size + len(piece) > JOINED_BYTES_MAX:
            parts.append(b"".join(some))
            some, size = [], 0
        some.append(piece)
        size += len(piece)
    return [*parts, b"".join(some)]


def _why_not(error: OSError) -> str:
    """The reason of a failed connection, with a remedy where there is a known one."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not trusted: {why}; the file of its authority (ca) may be missing"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no TLS connection: its address may begin with http://, or it asks for a certificate"
    if isinstance(error, NoNode):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorDNSError):  # its number is none of the system's errors
        return f"the host's address is not known: {error.os_error.strerror}"
    return os.strerror(error.errno) if error.errno else "no connection in time"


def _knows_no_leader(refusal: StockadeError) -> bool:
    """Whether the node named no leader: it may be cut off from the others, so the repetition goes to another node."""
    return isinstance(refusal, NotLeaderOrFollower | LeaderNotAvailable) and not refusal.fields.get("leader")


async def _read(response: aiohttp.ClientResponse, on_piece: Callable[[bytes], None] | None) -> bytearray:
    """The body, unless its pieces go to ``on_piece`` as they come. It is in memory once, whatever its length: the
    library's own ``read`` keeps all pieces, and then joins them.
    """
    body, size = bytearray(), 0
    take = on_piece or body.extend
    if (response.content_length or 0) <= ANSWER_BYTES_MAX:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > ANSWER_BYTES_MAX:
                break
            take(piece)
        else:
            return body
    response.close()
    raise unanswered(response.method, f"{response.url.origin()}: the answer is longer than {ANSWER_BYTES_MAX} bytes")

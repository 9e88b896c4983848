"""HTTP to the cluster's nodes: the client's only contact with aiohttp.

Owns the connections and the list of known nodes. It must never repeat a request that may have had an effect: it moves
on to another node only when nothing was sent, or when the answer was 421 ("not the leader, ask there"). Everything else
is an answer or an error for the caller to judge; a lost answer is RequestTimedOut, an unknown outcome, never a failure.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from ..partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut, StockadeError
from ..partition.switches import stop_at
from .config import ClientConfig
from .errors import ClientClosed, ClusterUnreachable, refusal_of

LEADER_HINTS_MAX = 3
"""How many 421 answers one request follows before it is refused."""
NODES_MAX = 1_000
"""Most nodes remembered beside the bootstrap list."""
NODE_PAUSE_S = 1.0
"""How long a node that could not be connected to, or knows no leader, is tried last."""
SILENT_PAUSE_S = 10.0
"""How long a node that took a request and did not answer is tried last: finding out anew costs a whole timeout."""
JOINED_BYTES_MAX = 64 << 10
"""Longest body that is sent in one piece, whatever its parts: beyond it, copying costs more than a system call."""
ANSWER_BYTES_MAX = 128 << 20
"""Longest answer read; a fetch asks for at most half of it."""

_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""What aiohttp raises when there was no connection, so that the node got nothing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer. ``leader`` is the base URL of the leader that decided, None when not told."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def leader(self) -> str | None:
        """Where to send the next request of this kind."""
        return self.headers.get("Stockade-Leader") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. ``node`` is the base URL to try first; with ``only_node`` the request goes nowhere else.

    ``timeout_ms`` overrides the configuration's; ``wait_ms``, which the request lets the node wait, comes on top.
    A long ``body`` in parts is not copied together. ``on_written`` is called each time it went to a connection.
    """

    method: str
    path: str
    params: Mapping[str, str | int] | None = None
    headers: Mapping[str, str] | None = None
    body: bytes | tuple[bytes, ...] = b""
    node: str | None = None
    only_node: bool = False
    timeout_ms: int | None = None
    wait_ms: int = 0
    on_written: Callable[[], None] | None = None


class Transport:
    """Connections to the nodes of one cluster, for one event loop. An async context manager, or ``close`` it."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._nodes = dict.fromkeys(config.bootstrap, 0.0)  # base URL -> monotonic time until which it is tried last
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    @property
    def nodes(self) -> list[str]:
        """Base URLs of the nodes known, in the order in which they would be tried now."""
        now_s = time.monotonic()
        return sorted(self._nodes, key=lambda url: self._nodes[url] > now_s)

    def learn(self, url: str) -> None:
        """Remember a node that the cluster named. Ignored when it is no base URL or there are too many."""
        if url not in self._nodes and len(self._nodes) < NODES_MAX and urlsplit(url).scheme in ("http", "https"):
            self._nodes[url.rstrip("/")] = 0.0

    def avoid(self, url: str) -> None:
        """Try a node last for a while: it takes requests and answers none."""
        self._pause(url, SILENT_PAUSE_S)

    async def close(self) -> None:
        """Close all connections; requests under way end with an unknown outcome."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def request(self, request: Request) -> Answer:
        """The 2xx answer to ``request``. Raises the refusal; RequestTimedOut when the outcome is unknown."""
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
                return await self._attempt(request, node)
            except _NOT_SENT as error:
                self._pause(node)
                reasons[node], cause = _why_not(error), error
        told = ", ".join(f"{node} ({why})" for node, why in reasons.items())
        raise ClusterUnreachable(f"no node answers: {told}") from cause

    async def _attempt(self, request: Request, node: str) -> Answer:
        timeout_ms = (request.timeout_ms or self._config.request_timeout_ms) + request.wait_ms
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000, sock_connect=self._config.connect_timeout_ms / 1000)
        if request.on_written is not None:
            stop_at("produce-begun")
        try:
            async with self._open_session().request(
                request.method,
                node + request.path,
                params=request.params,
                headers=request.headers,
                data=_Body(request.body, request.on_written) if request.body else None,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await _read(response)
                if request.on_written is not None:
                    stop_at("produce-answered")
        except _NOT_SENT:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.avoid(node)
            reason = f"no answer within {timeout_ms} ms" if isinstance(error, TimeoutError) else f"{error!r}"
            raise RequestTimedOut(f"{node}: {reason}; the outcome is unknown") from error
        if response.status >= 300:
            refusal = refusal_of(response.status, body)
            if _knows_no_leader(refusal):
                self._pause(node)
            raise refusal
        return Answer(response.status, response.headers, body)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise ClientClosed
        if self._session is None:
            access = self._config.access()
            trusted = access.context() if access.has_files else True
            connector = aiohttp.TCPConnector(limit=self._config.connections_max, ssl=trusted)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), headers=access.headers()
            )
        return self._session

    def _pause(self, node: str, pause_s: float = NODE_PAUSE_S) -> None:
        if node in self._nodes:
            self._nodes[node] = time.monotonic() + pause_s


class _Body(aiohttp.Payload):
    """A body that tells when it was handed to the connection.

    A short one goes in one piece with the headers: aiohttp joins those with the first part.
    """

    _value: tuple[bytes, ...]
    _autoclose = True

    def __init__(self, value: bytes | tuple[bytes, ...], on_written: Callable[[], None] | None) -> None:
        parts = value if isinstance(value, tuple) else (value,)
        size = sum(map(len, parts))
        super().__init__(parts if size > JOINED_BYTES_MAX else (b"".join(parts),))
        self._size = size
        self._on_written = on_written

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """As text; aiohttp uses it in its logs only."""
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Hand the bytes to the connection; waits while its buffer is full."""
        for part in self._value:
            await writer.write(part)
        if self._on_written is not None:
            self._on_written()
            stop_at("produce-written")


def _why_not(error: OSError) -> str:
    """Why there was no connection, and what may be done about it where that is known."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        return f"its certificate is not trusted: {why}; the file of its authority (ca) may be missing"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no TLS connection: its address may begin with http://, or it asks for a certificate"
    return os.strerror(error.errno) if error.errno else "no connection in time"


def _knows_no_leader(refusal: StockadeError) -> bool:
    """Such a node may be cut off from a cluster that has a leader: the repetition goes to another one."""
    return isinstance(refusal, NotLeaderOrFollower | LeaderNotAvailable) and not refusal.fields.get("leader")


async def _read(response: aiohttp.ClientResponse) -> bytes:
    if (response.content_length or 0) > ANSWER_BYTES_MAX:
        response.close()
        raise RequestTimedOut(f"{response.url.origin()}: the answer is longer than {ANSWER_BYTES_MAX} bytes")
    return await response.read()

"""Connections of a node to the HTTP interfaces of the other nodes, by which it reaches leaders.

They are authenticated and encrypted like the connections of Raft, and lead to members of the cluster only: a leader's
address in an answer is looked up in the node's own list of members, and never dialled as such.

A request that was certainly not sent is refused as LEADER_NOT_AVAILABLE. A mutating request that was sent and got no
answer has an unknown outcome, and is never reported as refused.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from ...client.transport.http import sent_once
from ...cluster.api.service import Service
from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut
from ..codec import json_codec
from .connections import Descriptors

PROOF_S = 5.0
"""Time in which a node must answer the question whether it is alive; an answer is valid so long after its question."""
HOPS_MAX = 3
"""Nodes that a request is sent to, each named as leader by the one before, before the request fails."""
CONNECT_S = 2.0
"""Time to connect to another node, the wait for one of CONNECTIONS_MAX included."""
CONNECTIONS_MAX = 4096
"""Connections to other nodes, followed streams included."""

FORWARDED_BY = "Stockade-Forwarded-By"
CLIENT_CERTIFICATE = "Stockade-Client-Certificate"
"""Header: the certificate that the client has shown to the node that forwards its request. Believed from nodes only."""
CLIENT_ADDRESS = "Stockade-Client-Address"
"""Header: the address of the client whose request a node forwards, for the ledger. Believed from nodes only."""
_HINT_BYTES_MAX = 64 * 1024
_MUTATING = ("POST", "PUT", "PATCH", "DELETE")


class Message(NamedTuple):
    """A request to another node. ``path`` is percent-encoded and includes the query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Peers:
    """A client of the other nodes' HTTP interfaces. Call ``open`` on the event loop first. Every request carries the id
    of this node in FORWARDED_BY, so the receiver does not forward it again.
    """

    def __init__(self, service: Service, descriptors: Descriptors | None = None) -> None:
        self._service = service
        self._descriptors = Descriptors() if descriptors is None else descriptors
        self._session: aiohttp.ClientSession | None = None
        self._proofs: dict[str, tuple[float, asyncio.Task[None]]] = {}
        """By node id: when the latest question whether the node is alive was asked, in loop time, and its task."""

    async def open(self) -> None:
        """Create the client session. Call this before the first request."""
        self._session = aiohttp.ClientSession(
            connector=_NodeConnector(self._service.open_stream, self._descriptors),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()

    async def reach(self, leader: str | None, message: Message, deadline_s: float) -> aiohttp.ClientResponse:
        """Send a request to ``leader`` (a base URL), or to the leader that its 421 names, to at most HOPS_MAX nodes.
        Return the answer, which the caller closes. Raises LeaderNotAvailable, RequestTimedOut.
        """
        deadline = asyncio.get_running_loop().time() + deadline_s
        for _ in range(HOPS_MAX):
            node_id = None if leader is None else self._service.node_at(leader)
            if leader is None or node_id is None:
                break
            upstream = await self._send(node_id, leader, message, deadline)
            if upstream.status != NotLeaderOrFollower.http_status:
                return upstream
            hint = await _hint(upstream, deadline)
            leader = hint if hint != leader else None
        raise LeaderNotAvailable("no node is known to lead here")

    async def prove(self, node_id: str) -> None:
        """Return once the node has answered a question that was asked at most PROOF_S ago. Raises LeaderNotAvailable.

        Thousands of streams may wait for one node: they share one question.
        """
        loop = asyncio.get_running_loop()
        asked_s, asking = self._proofs.get(node_id, (-PROOF_S, None))
        if asking is None or asked_s + PROOF_S <= loop.time():
            asking = loop.create_task(self._ask_whether_alive(node_id))
            asking.add_done_callback(_seen)
            self._proofs[node_id] = (loop.time(), asking)
        await asyncio.shield(asking)

    async def _ask_whether_alive(self, node_id: str) -> None:
        deadline = asyncio.get_running_loop().time() + PROOF_S
        upstream = await self._send(node_id, node_id, Message("GET", "/healthz", {}), deadline)
        upstream.close()

    async def _send(self, node_id: str, leader: str, message: Message, deadline: float) -> aiohttp.ClientResponse:
        assert self._session is not None, "the peers are not open"
        try:
            async with asyncio.timeout_at(deadline):
                return await self._session.request(
                    message.method,
                    URL(f"http://{_host_of(node_id)}{message.path}", encoded=True),
                    headers={**message.headers, FORWARDED_BY: self._service.node_id},
                    data=io.BytesIO(message.body) if message.body else None,
                    allow_redirects=False,
                    middlewares=(sent_once(),),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise LeaderNotAvailable(f"{leader} cannot be reached") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise lost(message.method, leader) from error


class _NodeConnector(aiohttp.BaseConnector):
    """An aiohttp connector over the streams between nodes. The host of a URL encodes a node id, see _host_of."""

    def __init__(
        self, open_stream: Callable[[str, asyncio.Protocol], Awaitable[None]], descriptors: Descriptors
    ) -> None:
        super().__init__(limit=CONNECTIONS_MAX)
        self._open_stream = open_stream
        self._descriptors = descriptors

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: object,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # as aiohttp calls it
    ) -> ResponseHandler:
        protocol = self._factory()
        try:
            with self._descriptors.dialling():
                await self._open_stream(bytes.fromhex(req.host).decode(), protocol)
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return protocol


def _host_of(node_id: str) -> str:
    """The node id in hexadecimal, as the host of a URL: an id may have characters, and capitals, that no host has."""
    return node_id.encode().hex()


async def whole_body(upstream: aiohttp.ClientResponse, timeout_s: float) -> bytes:
    """The body of an answer. Raises as for an answer that was not received (``lost``) if it does not come whole."""
    try:
        async with asyncio.timeout(timeout_s):
            return await upstream.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise lost(upstream.method, name_of(upstream)) from error


async def whole_json(upstream: aiohttp.ClientResponse, timeout_s: float) -> Any:
    """The JSON value that an answer is. Raises as ``whole_body``, also for an answer that is no JSON."""
    try:
        return json_codec.parse(await whole_body(upstream, timeout_s))
    except json_codec.NotJson as error:
        raise lost(upstream.method, name_of(upstream)) from error


def node_of(upstream: aiohttp.ClientResponse) -> str:
    """The id of the node that answers."""
    return bytes.fromhex(upstream.url.host or "").decode()


def name_of(upstream: aiohttp.ClientResponse) -> str:
    """The node that answers, as messages name it."""
    return f"node {node_of(upstream)}"


def lost(method: str, leader: str) -> LeaderNotAvailable | RequestTimedOut:
    """The error of a request that was sent and got no answer: RequestTimedOut (an unknown outcome) if the method may
    change something, otherwise LeaderNotAvailable.
    """
    if method in _MUTATING:
        return RequestTimedOut(f"{leader} did not answer")
    return LeaderNotAvailable(f"{leader} did not answer")


def _seen(asking: "asyncio.Task[None]") -> None:
    """Retrieve the error of a question that no stream may wait for any more, so that asyncio logs no unread error."""
    if not asking.cancelled():
        asking.exception()


async def _hint(upstream: aiohttp.ClientResponse, deadline: float) -> str | None:
    """The base URL of the leader that a 421 names, None if it names none or cannot be read. Closes the answer."""
    try:
        if (upstream.content_length or 0) > _HINT_BYTES_MAX:
            return None
        async with asyncio.timeout_at(deadline):
            document = json_codec.parse(await upstream.read())
    except (aiohttp.ClientError, TimeoutError, OSError, json_codec.NotJson):
        return None
    finally:
        upstream.close()
    leader = document.get("leader") if isinstance(document, dict) else None
    return leader if isinstance(leader, str) else None

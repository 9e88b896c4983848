"""Connections of a node to the HTTP interfaces of the others, by which it reaches leaders.

They are connections between nodes, authenticated and encrypted as those of Raft are, and lead to members of the cluster
only: an address that an answer names is looked up in the node's own list of members, and never dialled.

A request that was surely not sent is LEADER_NOT_AVAILABLE. A mutating request that was sent and not answered has an
unknown outcome, and never another.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from ...client.transport.http import sent_once
from ...cluster.api import Service
from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut
from ..codec import json_codec

PROOF_S = 5.0
"""Time in which a node must answer whether it is alive; so long an answer counts."""
HOPS_MAX = 3
"""Nodes that are asked one after the other before a request fails."""
CONNECT_S = 2.0
"""Time to connect to another node, the wait for one of CONNECTIONS_MAX included."""
CONNECTIONS_MAX = 4096
"""Connections to other nodes, followed streams included."""

FORWARDED_BY = "Stockade-Forwarded-By"
CLIENT_CERTIFICATE = "Stockade-Client-Certificate"
"""Whose certificate a client has shown to the node that forwards its request. Only a node's word counts."""
CLIENT_ADDRESS = "Stockade-Client-Address"
"""Where the request came from that a node forwards, for the ledger. Only a node's word counts."""
_HINT_BYTES_MAX = 64 * 1024
_MUTATING = ("POST", "PUT", "PATCH", "DELETE")


class Message(NamedTuple):
    """A request to another node. ``path`` is encoded and has the query."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class Peers:
    """``open`` it on the event loop. Each request that it sends names the node that forwards it."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._session: aiohttp.ClientSession | None = None
        self._proofs: dict[str, tuple[float, asyncio.Task[None]]] = {}
        """By node: the latest question whether it answers, and when it was asked."""

    async def open(self) -> None:
        """Must come before the first request."""
        self._session = aiohttp.ClientSession(
            connector=_NodeConnector(self._service.open_stream),
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
        """The answer of the node that leads: ``leader`` (a base URL), or the one that it names. The caller closes it.

        Raises LeaderNotAvailable, RequestTimedOut.
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
        """Returns when a node has answered a question that is at most PROOF_S old. Raises LeaderNotAvailable.

        Thousands of streams may ask for one node: they share the question.
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
                    middlewares=None if message.method == "GET" else (sent_once(),),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise LeaderNotAvailable(f"{leader} cannot be reached") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise lost(message.method, leader) from error


class _NodeConnector(aiohttp.BaseConnector):
    """Opens connections between nodes. The host of a URL stands for a node's id, see _host_of."""

    def __init__(self, open_stream: Callable[[str, asyncio.Protocol], Awaitable[None]]) -> None:
        super().__init__(limit=CONNECTIONS_MAX)
        self._open_stream = open_stream

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: object,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # as aiohttp calls it
    ) -> ResponseHandler:
        protocol = self._factory()
        try:
            await self._open_stream(bytes.fromhex(req.host).decode(), protocol)
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return protocol


def _host_of(node_id: str) -> str:
    """A host that no name server knows: an id may have characters, and capitals, that no host has."""
    return node_id.encode().hex()


async def whole_body(upstream: aiohttp.ClientResponse, timeout_s: float) -> bytes:
    """The body of an answer. An answer whose body does not come whole counts as not received."""
    try:
        async with asyncio.timeout(timeout_s):
            return await upstream.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise lost(upstream.method, name_of(upstream)) from error


def node_of(upstream: aiohttp.ClientResponse) -> str:
    """The id of the node that answers."""
    return bytes.fromhex(upstream.url.host or "").decode()


def name_of(upstream: aiohttp.ClientResponse) -> str:
    """The node that answers, for people."""
    return f"node {node_of(upstream)}"


def lost(method: str, leader: str) -> LeaderNotAvailable | RequestTimedOut:
    """The refusal of a request whose answer did not come: an unknown outcome, if the request could change something."""
    if method in _MUTATING:
        return RequestTimedOut(f"{leader} did not answer")
    return LeaderNotAvailable(f"{leader} did not answer")


def _seen(asking: "asyncio.Task[None]") -> None:
    """Take the error of a question whose askers may all be gone, so that asyncio logs no unread error."""
    if not asking.cancelled():
        asking.exception()


async def _hint(upstream: aiohttp.ClientResponse, deadline: float) -> str | None:
    """The leader that a 421 names."""
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

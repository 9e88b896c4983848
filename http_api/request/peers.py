"""Connections of a node to the HTTP ports of the others, by which it reaches leaders.

A request that was surely not sent is LEADER_NOT_AVAILABLE. A mutating request that was sent and not answered has an
unknown outcome, and never another.
"""

import asyncio
import io
from typing import NamedTuple

import aiohttp
from yarl import URL

from ...partition.errors import LeaderNotAvailable, NotLeaderOrFollower, RequestTimedOut
from ..codec import json_codec

HOPS_MAX = 3
"""Nodes that are asked one after the other before a request fails."""
CONNECT_S = 2.0
"""Time to connect to another node, the wait for one of CONNECTIONS_MAX included."""
CONNECTIONS_MAX = 4096
"""Connections to other nodes, followed streams included."""

FORWARDED_BY = "Stockade-Forwarded-By"
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

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Must come before the first request."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
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
            if leader is None:
                break
            upstream = await self._send(leader, message, deadline)
            if upstream.status != NotLeaderOrFollower.http_status:
                return upstream
            hint = await _hint(upstream, deadline)
            leader = hint if hint != leader else None
        raise LeaderNotAvailable("no node is known to lead here")

    async def _send(self, leader: str, message: Message, deadline: float) -> aiohttp.ClientResponse:
        assert self._session is not None, "the peers are not open"
        try:
            async with asyncio.timeout_at(deadline):
                return await self._session.request(
                    message.method,
                    URL(leader.rstrip("/") + message.path, encoded=True),
                    headers={**message.headers, FORWARDED_BY: self._node_id},
                    data=io.BytesIO(message.body) if message.body else None,
                    allow_redirects=False,
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise LeaderNotAvailable(f"{leader} cannot be reached") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise lost(message.method, leader) from error


async def whole_body(upstream: aiohttp.ClientResponse, timeout_s: float) -> bytes:
    """The body of an answer. An answer whose body does not come whole counts as not received."""
    try:
        async with asyncio.timeout(timeout_s):
            return await upstream.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise lost(upstream.method, str(upstream.url.origin())) from error


def lost(method: str, leader: str) -> LeaderNotAvailable | RequestTimedOut:
    """The refusal of a request whose answer did not come: an unknown outcome, if the request could change something."""
    if method in _MUTATING:
        return RequestTimedOut(f"{leader} did not answer")
    return LeaderNotAvailable(f"{leader} did not answer")


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

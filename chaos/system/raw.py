"""Requests as a test wants them: to one node, sent once, every refusal raised as it came.

What the public client does for its users (repeat, follow the leader, renew) would hide what is to be seen here.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

import msgspec

from ..client.model import AppendAnswer
from ..client.transport import Request, Transport
from ..partition.commands import Stamp, Token
from ..partition.errors import StockadeError

PAGE_BYTES = 4 << 20
"""Asked for at once when a log is read from end to end."""


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as a fetch with ``meta`` shows it: text, or base64 where the bytes are not valid UTF-8."""

    offset: int
    writer_epoch: int
    key: str | None = None
    value: str | None = None
    key_base64: str | None = None
    value_base64: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    sequence: int | None = None

    @property
    def value_bytes(self) -> bytes:
        """The value as it was sent."""
        return b64decode(self.value_base64) if self.value_base64 is not None else (self.value or "").encode()

    @property
    def name(self) -> str:
        """The key, by which the checkers know a record."""
        return self.key or ""

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Producer id, its epoch, sequence number; None when the append named none."""
        if self.producer_id is None or self.producer_epoch is None or self.sequence is None:
            return None
        return self.producer_id, self.producer_epoch, self.sequence


class Page(msgspec.Struct, frozen=True):
    """Answer of a fetch."""

    log_start: int
    log_end: int
    next_offset: int
    stale: bool
    records: list[StoredRecord]


_FOR_THIS_NODE = {"Stockade-Forwarded-By": "client"}
"""Such a request is answered by the node itself, or with 421; it is never passed on."""
_page_decoder = msgspec.json.Decoder(Page)
_append_decoder = msgspec.json.Decoder(AppendAnswer)


class RawNode:
    """One node of a cluster, by its own HTTP address."""

    def __init__(self, transport: Transport, url: str, timeout_ms: int = 10_000) -> None:
        """``timeout_ms`` is for one request; after it the outcome is unknown (RequestTimedOut)."""
        self.url = url
        self._transport = transport
        self._timeout_ms = timeout_ms

    async def fetch(self, topic: str, partition: int, offset: int, *, local: bool, max_bytes: int = PAGE_BYTES) -> Page:
        """Records from ``offset`` on: this node's own replica if ``local``, otherwise a linearizable read."""
        params: dict[str, str | int] = {"offset": offset, "max_bytes": max_bytes, "meta": "true"}
        if local:
            params["local"] = "true"
        body = await self._send("GET", f"/v1/topics/{topic}/partitions/{partition}/records", params=params)
        return _page_decoder.decode(body)

    async def append(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[str, bytes]],
        *,
        token: Token | None = None,
        stamp: Stamp | None = None,
    ) -> AppendAnswer:
        """Append (key, value) pairs as one batch."""
        wire = [{"key": key, "value_base64": b64encode(value).decode()} for key, value in records]
        headers = {"Content-Type": "application/json", **_fence_headers(token), **_producer_headers(stamp)}
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        return _append_decoder.decode(await self._send("POST", path, headers, msgspec.json.encode({"records": wire})))

    async def is_ready(self) -> bool:
        """What the node says of itself at ``/readyz``; a node that cannot be reached is not ready."""
        return await self.why_not_ready() is None

    async def why_not_ready(self) -> str | None:
        """What the node says that it waits for, or why it cannot be asked; None when it is ready."""
        try:
            await self._send("GET", "/readyz")
        except StockadeError as error:
            return str(error)
        return None

    async def _send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        params: Mapping[str, str | int] | None = None,
    ) -> bytes:
        request = Request(
            method=method,
            path=path,
            params=params,
            headers={**_FOR_THIS_NODE, **(headers or {})},
            body=body,
            node=self.url,
            only_node=True,
            timeout_ms=self._timeout_ms,
        )
        return (await self._transport.request(request)).body


def _fence_headers(token: Token | None) -> dict[str, str]:
    if token is None:
        return {}
    return {
        "Stockade-Fence-Grant": token.grant_id,
        "Stockade-Fence-Epoch": str(token.epoch),
        "Stockade-Session": token.session,
    }


def _producer_headers(stamp: Stamp | None) -> dict[str, str]:
    if stamp is None:
        return {}
    return {
        "Stockade-Producer-Id": str(stamp.pid),
        "Stockade-Producer-Epoch": str(stamp.epoch),
        "Stockade-Producer-Seq": str(stamp.first_seq),
    }

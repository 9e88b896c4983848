"""Requests to one node, each sent once, with every refusal raised as it came.

The public client repeats, follows leaders and renews, which would hide the node's own answers.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

import msgspec

from ...client.api.client import append_headers
from ...client.transport.http import Request, Transport
from ...partition.api.records import AppendAnswer
from ...partition.commands import Stamp, Token
from ...partition.errors import StockadeError

PAGE_BYTES = 4 << 20
"""Bytes of one fetch when a whole log is read."""


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
        """The key, which is the name of a record."""
        return self.key or ""

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Producer id, its epoch, sequence number; None if the append had no producer."""
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
"""The node answers such a request itself, or with 421; it does not forward it."""
_page_decoder = msgspec.json.Decoder(Page)
_append_decoder = msgspec.json.Decoder(AppendAnswer)


class RawNode:
    """One node of a cluster, by its own HTTP address."""

    def __init__(self, transport: Transport, url: str, timeout_ms: int = 10_000) -> None:
        """``timeout_ms`` bounds one request; after it the outcome is unknown (RequestTimedOut)."""
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
        headers = append_headers(stamp, token) | {"Content-Type": "application/json"}
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        return _append_decoder.decode(await self._send("POST", path, headers, msgspec.json.encode({"records": wire})))

    async def is_ready(self) -> bool:
        """Whether ``/readyz`` says so; a node that cannot be reached is not ready."""
        return await self.why_not_ready() is None

    async def why_not_ready(self) -> str | None:
        """What the node waits for, or why it cannot be reached; None if it is ready."""
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
        return bytes((await self._transport.request(request)).body)

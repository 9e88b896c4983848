"""One attempt at a time, recorded: what the public client would repeat, follow or hide is seen here as it comes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from ...client.model import AppendAnswer
from ...client.transport import Request, Transport
from ...partition.commands import Stamp, Token
from ...partition.errors import StockadeError
from ...partition.records import STREAM_END, STREAM_START, batch_from_columns
from ..history import Event, History, record_name
from ..payload import payload
from .protocol import Stage

BATCH_BYTES_MAX = 1 << 20
"""As the topics have it by default."""
ATTEMPT_TIMEOUT_MS = 8_000
"""After it the outcome is unknown."""


class Batch(msgspec.Struct, frozen=True):
    """Records ``first`` to ``first + count - 1`` of ``writer``."""

    writer: str
    first: int
    count: int

    @property
    def message(self) -> bytes:
        """As it travels: a whole Arrow stream."""
        indices = range(self.first, self.first + self.count)
        keys = [record_name(self.writer, index).encode() for index in indices]
        values = [payload(self.writer, index) for index in indices]
        batch = batch_from_columns(keys, values, None, None, now_ms=0, batch_bytes_max=BATCH_BYTES_MAX)
        return b"".join((STREAM_START, batch.message, STREAM_END))


class Guard(msgspec.Struct, frozen=True):
    """Under what an append may pass: a slot's token, or the fence_epoch of an owned resource."""

    token: Token | None = None
    resource: str | None = None
    fence_epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """The fencing epoch, of whichever kind."""
        return self.token.epoch if self.token is not None else self.fence_epoch


class Desk:
    """Where the appends of one actor go out, and into the history."""

    def __init__(self, transport: Transport, stage: Stage) -> None:
        self._transport = transport
        self._stage = stage

    async def append(
        self,
        process: str,
        partition: int,
        batch: Batch,
        *,
        stamp: Stamp | None = None,
        guard: Guard | None = None,
        node: str | None = None,
    ) -> AppendAnswer | StockadeError:
        """One attempt; what came of it. Cancelled, it is of unknown outcome. ``node``: base URL to send it to first."""
        guard = guard or Guard()
        invoked = invoke_append(self._stage.history, process, self._stage.topic, partition, batch, stamp, guard)
        try:
            body = await self._transport.request(self._request(partition, batch, stamp, guard, node))
        except StockadeError as error:
            self._stage.history.settle_error(invoked, error)
            return error
        except asyncio.CancelledError:
            self._stage.history.settle(invoked, "info", error="given up")
            raise
        answer = msgspec.json.decode(body.body, type=AppendAnswer)
        self._stage.history.settle(invoked, "ok", offset=answer.base_offset)
        return answer

    def _request(self, partition: int, batch: Batch, stamp: Stamp | None, guard: Guard, node: str | None) -> Request:
        params = {"fence_epoch": guard.fence_epoch} if guard.fence_epoch is not None else None
        return Request(
            method="POST",
            path=f"/v1/topics/{self._stage.topic}/partitions/{partition}/records",
            params=params,
            headers={"Content-Type": "application/vnd.apache.arrow.stream", **_headers(stamp, guard.token)},
            body=batch.message,
            node=node,
            timeout_ms=ATTEMPT_TIMEOUT_MS,
        )


def is_unknown(answer: AppendAnswer | StockadeError) -> bool:
    """Whether the batch may still be stored. Without a sequence number that may be behind what is written next, so the
    life that wrote it ends: nothing that goes on under the same name after it has an order.
    """
    return isinstance(answer, StockadeError) and not answer.no_side_effects


def invoke_append(
    history: History, process: str, topic: str, partition: int, batch: Batch, stamp: Stamp | None, guard: Guard
) -> Event:
    """The beginning of an append, with everything that a checker wants to know of it."""
    return history.invoke(
        process,
        "append",
        topic=topic,
        partition=partition,
        epoch=guard.epoch,
        resource=guard.resource,
        producer_id=stamp.pid if stamp else None,
        producer_epoch=stamp.epoch if stamp else None,
        seq=stamp.first_seq if stamp else None,
        value=record_name(batch.writer, batch.first),
        count=batch.count,
    )


def _headers(stamp: Stamp | None, token: Token | None) -> Mapping[str, Any]:
    headers = {}
    if stamp is not None:
        headers["Stockade-Producer-Id"] = str(stamp.pid)
        headers["Stockade-Producer-Epoch"] = str(stamp.epoch)
        headers["Stockade-Producer-Seq"] = str(stamp.first_seq)
    if token is not None:
        headers["Stockade-Fence-Grant"] = token.grant_id
        headers["Stockade-Fence-Epoch"] = str(token.epoch)
        headers["Stockade-Session"] = token.session
    return headers

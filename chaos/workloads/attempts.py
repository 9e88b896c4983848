"""Single append attempts, recorded: the public client would hide refusals by repeating and following leaders."""

import asyncio

import msgspec

from ...client.api.client import append_headers
from ...client.transport.http import Request, Transport
from ...partition.api.records import AppendAnswer
from ...partition.commands import Stamp, Token
from ...partition.errors import StockadeError
from ...partition.records.batch import STREAM_END, STREAM_START, batch_from_columns
from ..history.history import Event, History, payload, record_name
from .protocol import ActorContext

BATCH_BYTES_MAX = 1 << 20
"""The default max_batch_bytes of a topic."""
ATTEMPT_TIMEOUT_MS = 8_000
"""Time of one attempt; then its outcome is unknown."""


class Batch(msgspec.Struct, frozen=True):
    """Records ``first`` to ``first + count - 1`` of ``writer``."""

    writer: str
    first: int
    count: int

    @property
    def message(self) -> bytes:
        """The body of the request: a whole Arrow stream."""
        indices = range(self.first, self.first + self.count)
        keys = [record_name(self.writer, index).encode() for index in indices]
        values = [payload(self.writer, index) for index in indices]
        batch = batch_from_columns(keys, values, None, None, now_ms=0, batch_bytes_max=BATCH_BYTES_MAX)
        return b"".join((STREAM_START, batch.message, STREAM_END))


class Guard(msgspec.Struct, frozen=True):
    """The guard of an append: the token of a slot, or the fence_epoch of an owned resource; or neither."""

    token: Token | None = None
    resource: str | None = None
    fence_epoch: int | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch of the token, or the fence_epoch; None without both."""
        return self.token.epoch if self.token is not None else self.fence_epoch


class AttemptRecorder:
    """Sends the appends of one actor, and records them in the history."""

    def __init__(self, transport: Transport, context: ActorContext) -> None:
        self._transport = transport
        self._context = context

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
        """Send ``batch`` once; return the answer or the refusal. If cancelled, its outcome is recorded as unknown.

        ``node``: base URL of the node to try first.
        """
        guard = guard or Guard()
        invoked = invoke_append(self._context.history, process, self._context.topic, partition, batch, stamp, guard)
        try:
            body = await self._transport.request(self._request(partition, batch, stamp, guard, node))
        except StockadeError as error:
            self._context.history.settle_error(invoked, error)
            return error
        except asyncio.CancelledError:
            self._context.history.settle(invoked, "info", error="given up")
            raise
        answer = msgspec.json.decode(body.body, type=AppendAnswer)
        self._context.history.settle(invoked, "ok", offset=answer.base_offset)
        return answer

    def _request(self, partition: int, batch: Batch, stamp: Stamp | None, guard: Guard, node: str | None) -> Request:
        params = {"fence_epoch": guard.fence_epoch} if guard.fence_epoch is not None else None
        return Request(
            method="POST",
            path=f"/v1/topics/{self._context.topic}/partitions/{partition}/records",
            params=params,
            headers=append_headers(stamp, guard.token),
            body=batch.message,
            node=node,
            timeout_ms=ATTEMPT_TIMEOUT_MS,
        )


def is_unknown(answer: AppendAnswer | StockadeError) -> bool:
    """Whether the batch may still be stored. If it has no sequence number, it may land behind later batches of the same
    process; so the actor goes on under another process name, because the records of a name must be in order.
    """
    return isinstance(answer, StockadeError) and not answer.no_side_effects


def invoke_append(
    history: History, process: str, topic: str, partition: int, batch: Batch, stamp: Stamp | None, guard: Guard
) -> Event:
    """Record the beginning of an append, with everything that checkers need."""
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

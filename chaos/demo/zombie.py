"""The zombie: a writer that was replaced during its stall goes on writing, in every way that it has, until refused."""

import asyncio
from collections.abc import Iterator
from itertools import count, islice

from ...client.api.client import Client
from ...partition.api.records import AppendAnswer
from ...partition.commands import Stamp, Token
from ...partition.errors import ProducerFenced, StockadeError
from ...partition.records.batch import batch_from_columns
from ..history.history import Event, History, record_name, split_name
from ..streams.stream import Stream

ATTEMPTS = 24
"""Refused writes after which the zombie stops."""
ATTEMPTS_MAX = 200
"""Writes of any outcome after which it gives up, so that a cluster without a leader does not keep it for ever."""
PAUSE_S = 0.05
BATCH_BYTES_MAX = 16 << 20
"""max_batch_bytes of the demo's topic."""


class NotRefused(Exception):
    """Fewer than ATTEMPTS writes were refused: some were accepted, or no node answered."""


class Zombie:
    """The replaced writer, with all that it has: token, producer id and epoch, last append, and further lines."""

    def __init__(self, client: Client, history: History, token: Token, last: Event, stream: Stream) -> None:
        """``last``: the invocation of its latest acknowledged append."""
        assert last.topic is not None and last.partition is not None and last.value is not None and last.count
        self._client = client
        self._history = history
        self._process = stream.zombie
        self._token = token
        self._topic, self._partition, self._value, self._count = last.topic, last.partition, last.value, last.count
        self._stamp = _stamp_of(last)
        self._stream = stream

    async def persist(self) -> None:
        """Try to write until ATTEMPTS were refused with PRODUCER_FENCED. Raises NotRefused."""
        identity = await self._client.init_producer()
        fresh = Stamp(identity.producer_id, identity.producer_epoch, 0)
        refused = 0
        for stamp, value in islice(self._variants(fresh), ATTEMPTS_MAX):
            refused += await self._try(stamp, value)
            if refused == ATTEMPTS:
                return
        raise NotRefused(f"{refused} of {ATTEMPTS_MAX} writes of the zombie were refused with PRODUCER_FENCED")

    def _variants(self, fresh: Stamp) -> Iterator[tuple[Stamp | None, str]]:
        """Yield for ever (stamp, name of the first record): the last batch again; the next one; sequences far ahead;
        the next epoch; a fresh producer id; no producer.
        """
        pid, epoch = self._stamp.pid, self._stamp.epoch
        behind = self._stamp.first_seq + self._count
        invented = (record_name(self._process, k * self._count) for k in count())
        for number in count(1):
            yield self._stamp, self._value
            yield Stamp(pid, epoch, behind), next(invented)
            yield Stamp(pid, epoch, behind + number * 1_000), next(invented)
            yield Stamp(pid, epoch + 1, 0), next(invented)
            yield fresh, next(invented)
            yield None, next(invented)

    async def _try(self, stamp: Stamp | None, value: str) -> bool:
        invoked = self._history.invoke(
            self._process,
            "append",
            topic=self._topic,
            partition=self._partition,
            epoch=self._token.epoch,
            value=value,
            count=self._count,
            producer_id=stamp.pid if stamp else None,
            producer_epoch=stamp.epoch if stamp else None,
            seq=stamp.first_seq if stamp else None,
        )
        try:
            answer = await self._append(value, stamp)
        except StockadeError as error:
            self._history.settle_error(invoked, error)
            if not isinstance(error, ProducerFenced):
                await asyncio.sleep(PAUSE_S)
            return isinstance(error, ProducerFenced)
        self._history.settle(invoked, "ok", offset=answer.base_offset)
        return False

    async def _append(self, value: str, stamp: Stamp | None) -> AppendAnswer:
        writer, first = split_name(value)
        indices = range(first, first + self._count)
        keys = [record_name(writer, index).encode() for index in indices]
        values = [self._stream.line(index) for index in indices]
        batch = batch_from_columns(keys, values, None, None, now_ms=0, batch_bytes_max=BATCH_BYTES_MAX)
        return await self._client.append(self._topic, self._partition, batch.message, token=self._token, stamp=stamp)


def _stamp_of(event: Event) -> Stamp:
    assert event.producer_id is not None and event.producer_epoch is not None and event.seq is not None
    return Stamp(event.producer_id, event.producer_epoch, event.seq)

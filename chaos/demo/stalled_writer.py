"""The producer that the demo stalls, as a child process (child.py): ``python -m stockade.chaos.demo.stalled_writer``.

After its order it reads lines: each is the number of records that it may write from now on. When it finds that another
producer has taken its place, it goes on trying as zombie.py says, and ends.
"""

import asyncio
from pathlib import Path

import msgspec

from ...client.config import ClientConfig
from ...client.producer.producer import Producer
from ...partition.errors import ProducerFenced
from ..harness.child import take_order
from ..history.history import History
from ..streams.stream import Stream, split_lines
from ..streams.writer import StreamWriter
from .zombie import Zombie

SESSION_TTL_MS = 300_000
"""Longer than the stall: the zombie must be refused because of its successor's epoch, not because its session ended."""


class Order(msgspec.Struct, frozen=True):
    """The order for the writer: its stream, and the partition to write. ``path``: the file of the stream's lines."""

    bootstrap: list[str]
    topic: str
    path: str
    name: str
    partition: int
    records: int
    batch_records: int
    may_send: int
    """Records that it may write before the parent permits more."""

    def stream(self) -> Stream:
        """Read the stream from its file."""
        return Stream(self.name, self.partition, split_lines(Path(self.path).read_bytes()), self.records)


class Permission:
    """The number of records that the parent permits."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._grew = asyncio.Event()

    async def may_send(self, index: int) -> bool:
        """Return True when record ``index`` may be sent."""
        while index >= self._records:
            self._grew.clear()
            await self._grew.wait()
        return True

    async def follow(self, lines: asyncio.StreamReader) -> None:
        """Read new permissions from the parent until end of file."""
        async for line in lines:
            self._records = int(line)
            self._grew.set()


async def work(order: Order, history: History, permission: Permission) -> None:
    """Write the stream; once replaced, go on trying as a zombie. Raises any other failure."""
    config = ClientConfig(
        bootstrap=tuple(order.bootstrap),
        session_ttl_ms=SESSION_TTL_MS,
        batch_records_max=order.batch_records,  # a request has the records of one call: the zombie repeats one batch
    )
    stream = order.stream()
    producer = await Producer(config, name=order.name).start()
    writer = StreamWriter(producer, history, order.topic, order.name, stream)
    try:
        async with writer.exclusive() as fence:
            try:
                await writer.run(0, order.batch_records, may_send=permission.may_send, acknowledged=lambda _: None)
            except ProducerFenced:
                assert writer.last_acknowledged is not None
                token = fence.token(order.partition)
                await Zombie(producer.client, history, token, writer.last_acknowledged, stream).persist()
    finally:
        await producer.abort()


async def main() -> None:
    """Take the order and work until done, or until the parent is gone."""
    order, history, lines = await take_order(Order)
    permission = Permission(order.may_send)
    working = asyncio.create_task(work(order, history, permission))
    parent = asyncio.create_task(permission.follow(lines))
    await asyncio.wait({working, parent}, return_when=asyncio.FIRST_COMPLETED)
    parent.cancel()
    if not working.done():
        working.cancel()
    await working


if __name__ == "__main__":
    asyncio.run(main())

"""A writer in a process of its own, so that it can be stalled: ``python -m stockade.chaos.writer``.

Reads an Order, then lines that each say up to which record it may go, from standard input; writes its history to
standard output, an event a line. When it finds itself replaced it insists, as zombie.py has it, and ends.
"""

import asyncio
import io
import sys
from pathlib import Path

import msgspec

from ..client.config import ClientConfig
from ..client.producer import Producer
from ..partition.errors import ProducerFenced
from .history import History
from .streams import Stream, split_lines
from .workload import StreamWriter
from .zombie import Zombie

SESSION_TTL_MS = 300_000
"""Longer than any stall of ours: the zombie must meet its successor's epoch, not the end of its own session."""


class Order(msgspec.Struct, frozen=True):
    """What to write, and where. ``path`` is the file that ``stream_name`` was made of."""

    bootstrap: list[str]
    topic: str
    path: str
    name: str
    partition: int
    records: int
    batch_records: int
    may_send: int
    """Records that it may write before it hears more."""

    def stream(self) -> Stream:
        """The stream, read from its file."""
        return Stream(self.name, self.partition, split_lines(Path(self.path).read_bytes()), self.records)


class Leave:
    """How far the parent lets the writer go."""

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
        """Take the parent's lines until it closes them."""
        async for line in lines:
            self._records = int(line)
            self._grew.set()


async def work(order: Order, history: History, leave: Leave) -> None:
    """Write the stream; when replaced, insist. Raises what else stops the writer."""
    config = ClientConfig(
        bootstrap=tuple(order.bootstrap),
        session_ttl_ms=SESSION_TTL_MS,
        batch_records_max=order.batch_records,  # no two calls in one request: what the zombie repeats is a batch
    )
    stream = order.stream()
    producer = await Producer(config, name=order.name).start()
    writer = StreamWriter(producer, history, order.topic, order.name, stream)
    try:
        async with writer.exclusive() as fence:
            try:
                await writer.run(0, order.batch_records, may_send=leave.may_send, acknowledged=lambda _: None)
            except ProducerFenced:
                assert writer.last_acknowledged is not None
                token = fence.token(order.partition)
                await Zombie(producer.client, history, token, writer.last_acknowledged, stream).insist()
    finally:
        await producer.abort()


async def main() -> None:
    """Take the order and work, as long as the parent is there."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    order = msgspec.json.decode(await lines.readline(), type=Order)
    leave = Leave(order.may_send)
    # Unbuffered: what happened before a stall must be known before it ends.
    history = History(io.FileIO(sys.stdout.fileno(), "wb", closefd=False))
    working = asyncio.create_task(work(order, history, leave))
    parent = asyncio.create_task(leave.follow(lines))
    await asyncio.wait({working, parent}, return_when=asyncio.FIRST_COMPLETED)
    parent.cancel()
    if not working.done():
        working.cancel()
    await working


if __name__ == "__main__":
    asyncio.run(main())

"""Traffic that goes on through any fault until it is told to stop: writers that start anew when they were given up, and
a reader whose every answer is held against what was acknowledged.
"""

import asyncio
from collections.abc import Sequence

from stockade.chaos.history.history import History
from stockade.chaos.streams.stream import Stream
from stockade.chaos.streams.writer import StreamWriter
from stockade.chaos.system.raw import Page, RawNode
from stockade.client.config import ClientConfig
from stockade.client.producer.producer import Producer
from stockade.partition.errors import StockadeError

PAUSE_S = 0.05
"""Before what failed is begun again."""
RECORDS_MAX = 1_000_000
"""Of one writer; no run comes near."""
BATCH_RECORDS = 3

LINES = [b"line %d of a writer that goes on and on" % number for number in range(7)]


def payload(writer: str, index: int) -> bytes | None:
    """Which bytes a record of a steady writer, or of a probe, must have."""
    return _stream(writer, 0).line(index) if index >= 0 and writer else None


class Traffic:
    """Writers and a reader of one partition. ``acknowledged`` counts records; ``grown`` waits for more of them."""

    def __init__(self, config: ClientConfig, history: History, topic: str, partition: int) -> None:
        self.acknowledged = 0
        self._config = config
        self._history = history
        self._topic = topic
        self._partition = partition
        self._is_stopping = False
        self._grew = asyncio.Event()

    def stop(self) -> None:
        """Writers and reader end once what they have begun is settled."""
        self._is_stopping = True

    async def grown(self, records: int) -> None:
        """Return once so many more records than now are acknowledged."""
        wanted = self.acknowledged + records
        while self.acknowledged < wanted:
            await self._grew.wait()

    async def write(self, name: str) -> None:
        """Write until stopped. After a refusal that ends its producer, the writer goes on under another name."""
        life = 0
        while not self._is_stopping:
            life += 1
            try:
                await self._live(f"{name}.{life}")
            except StockadeError:
                await asyncio.sleep(PAUSE_S)

    async def read(self, nodes: Sequence[RawNode]) -> None:
        """Read what is new, again and again until stopped, from every node that gives a linearizable answer."""
        offset = 0
        while not self._is_stopping:
            for node in nodes:
                page = await read_once(node, self._history, "reader", self._topic, self._partition, offset)
                offset = page.next_offset if page is not None else offset
            await asyncio.sleep(PAUSE_S)

    async def _live(self, name: str) -> None:
        producer = await Producer(self._config, name=name).start()
        try:
            writer = StreamWriter(producer, self._history, self._topic, name, _stream(name, self._partition))
            await writer.run(0, BATCH_RECORDS, may_send=self._may_send, acknowledged=self._on_acknowledged)
        finally:
            await producer.abort()

    async def _may_send(self, _: int) -> bool:
        return not self._is_stopping

    def _on_acknowledged(self, count: int) -> None:
        self.acknowledged += count
        self._grew.set()
        self._grew = asyncio.Event()


async def read_once(
    node: RawNode, history: History, process: str, topic: str, partition: int, offset: int
) -> Page | None:
    """One linearizable read of one node, in the history; None when it was not answered."""
    invoked = history.invoke(process, "fetch", topic=topic, partition=partition, node=node.url)
    try:
        page = await node.fetch(topic, partition, offset, local=False)
    except StockadeError as error:
        history.settle_error(invoked, error)
        return None
    at_end = bool(page.records) and page.next_offset == page.log_end
    last = {"value": page.records[-1].name, "count": 1} if at_end else {}
    history.settle(invoked, "ok", offset=page.log_end, node=node.url, **last)
    return page


def _stream(name: str, partition: int) -> Stream:
    return Stream(name, partition, LINES, RECORDS_MAX)

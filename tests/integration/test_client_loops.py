"""The client on asyncio's own event loop and on uvloop, whose timers differ, while a node stands still."""

import asyncio
import itertools
import signal
from collections.abc import Callable

import pytest
import uvloop

from stockade import Client, ClientConfig, Consumer, Producer
from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode

from .test_failover import node_named, whole

pytestmark = pytest.mark.elections

PARTITIONS = 64
STALLS = 3
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Stream:
    """Writes numbers to one partition, three in flight, until it is told to stop."""

    def __init__(self, producer: Producer, topic: str, partition: int) -> None:
        self.stored = 0
        self._producer = producer
        self._topic = topic
        self._partition = partition

    async def run(self, stopping: asyncio.Event) -> None:
        for number in itertools.count(step=3):
            sent = [
                await self._producer.send_batch(self._topic, self._partition, [b"%d" % (number + more)])
                for more in range(3)
            ]
            for delivery in sent:
                self.stored = ((await delivery).last_offset or 0) + 1
            if stopping.is_set():
                return


async def more(streams: list[Stream], count: int) -> None:
    """Return when the streams have stored ``count`` more together, or one has failed."""
    wanted = sum(stream.stored for stream in streams) + count
    while sum(stream.stored for stream in streams) < wanted:  # noqa: ASYNC110  # the records are the event
        await asyncio.sleep(0.01)


async def stalls(cluster: LocalCluster, streams: list[Stream], leader: LocalNode) -> None:
    """Short stalls of one node that many requests wait for; then one that ends when every partition went on."""
    for _ in range(STALLS):
        cluster.kill(leader, signal.SIGSTOP)
        await more(streams, 100)
        cluster.kill(leader, signal.SIGCONT)
        await more(streams, 200)
    cluster.kill(leader, signal.SIGSTOP)
    try:
        for stream in streams:
            await more([stream], 1)
    finally:
        cluster.kill(leader, signal.SIGCONT)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_node_that_stands_still_costs_no_record_on_any_event_loop(cluster: LocalCluster, loop: str) -> None:
    whole(cluster)
    urls = tuple(node.url for node in cluster.nodes)
    config = ClientConfig(bootstrap=urls, standstill_ms=100, linger_ms=0)

    async def run() -> None:
        async with Client(config) as client:
            described = await client.create_topic(f"loops-{loop}", partitions=PARTITIONS)
        leader = node_named(cluster, described.partitions[0].leader_node)
        stopping = asyncio.Event()
        async with Producer(config) as producer, asyncio.TaskGroup() as running:
            streams = [Stream(producer, described.name, number) for number in range(PARTITIONS)]
            writing = [running.create_task(stream.run(stopping)) for stream in streams]
            await stalls(cluster, streams, leader)
            stopping.set()
            await asyncio.gather(*writing)
        await check(config, described.name, streams)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


async def check(config: ClientConfig, topic: str, streams: list[Stream]) -> None:
    """Every number is stored once, in order."""
    found: list[list[bytes | None]] = [[] for _ in streams]
    async with Consumer(config) as consumer:
        async for record in consumer.read(topic):
            found[record.partition].append(record.value)
    for stream, values in zip(streams, found, strict=True):
        assert values == [b"%d" % number for number in range(stream.stored)]

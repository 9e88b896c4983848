import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

import stockade
from stockade.client.admin import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClusterUnreachable
from stockade.client.metadata import Metadata
from stockade.client.model import PartitionState, Topic, TopicConfig
from stockade.partition.errors import TopicAlreadyExists, UnknownTopicOrPartition
from stockade.partition.version import VERSION

from .fake_cluster import FakeCluster


def use(cluster: FakeCluster, work: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Client(ClientConfig(bootstrap=tuple(cluster.nodes[:1]), retry_backoff_ms=1)) as client:
            await work(client)

    asyncio.run(run())


def test_topics_are_created_listed_described_and_deleted(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        created = await client.create_topic("t", partitions=2, config={"require_fence": True})
        assert (created.name, len(created.partitions), created.config.require_fence) == ("t", 2, True)
        assert await client.create_topic("t", partitions=2, config=TopicConfig(require_fence=True)) == created
        with pytest.raises(TopicAlreadyExists):
            await client.create_topic("t", partitions=3)
        assert [(topic.name, topic.partitions) for topic in await client.topics()] == [("t", 2)]
        assert await client.topic("t") == created
        assert (await client.offsets("t", 0)).log_end == 0
        await client.delete_topic("t", topic_id=created.topic_id)
        with pytest.raises(UnknownTopicOrPartition):
            await client.topic("t")

    use(cluster, work)


def test_the_other_nodes_are_learned_so_that_one_bootstrap_node_may_die(cluster: FakeCluster) -> None:
    async def work(client: Client) -> None:
        assert [node.url for node in (await client.connect()).nodes] == cluster.nodes
        await asyncio.to_thread(cluster.kill, cluster.nodes[0])
        assert await client.topics() == []

    use(cluster, work)


def test_connecting_to_nothing_fails_at_once() -> None:
    async def run() -> None:
        async with Client("http://127.0.0.1:9") as client:
            with pytest.raises(ClusterUnreachable):
                await client.connect()

    asyncio.run(run())


def described(name: str, leader: str | None) -> Topic:
    state = PartitionState(partition=0, leader=leader, leader_node=None, leader_term=1, replicas=[])
    return Topic(name, 1, 1, False, TopicConfig(), [state])


def test_a_description_is_asked_for_once_until_it_is_forgotten() -> None:
    asked: list[str] = []

    async def describe(name: str) -> Topic:
        asked.append(name)
        return described(name, "http://a:1")

    async def run() -> None:
        metadata = Metadata(describe)
        await asyncio.gather(*(metadata.topic("t") for _ in range(5)))
        assert asked == ["t"]
        assert metadata.leader("t", 0) == "http://a:1"
        metadata.heard("t", 0, None)
        metadata.heard("t", 0, "http://b:1")
        assert metadata.leader("t", 0) == "http://b:1"
        metadata.doubt("t", 0, "http://a:1")  # it was asked before the other one was heard of
        assert metadata.leader("t", 0) == "http://b:1"
        metadata.doubt("t", 0, "http://b:1")
        assert metadata.leader("t", 0) is None
        metadata.forget("t")
        assert metadata.known("t") is None
        await metadata.topic("t")
        assert asked == ["t", "t"]

    asyncio.run(run())


def test_the_public_names_are_there_and_the_version_is_the_package_s() -> None:
    for name in stockade.__all__:
        assert getattr(stockade, name) is not None
    assert set(stockade.__all__) <= set(dir(stockade))
    with pytest.raises(AttributeError):
        _ = stockade.nonsense
    assert stockade.__version__ == VERSION


def test_importing_the_package_loads_neither_server_nor_heavy_dependencies() -> None:
    code = "import stockade, sys; stockade.ClientConfig; print([m for m in sys.modules if m in %r])"
    unwanted = ["aiohttp", "pyarrow", "stockade.cluster", "stockade.raft", "stockade.http_api"]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code % unwanted]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "[]"

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

import stockade
from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClusterUnreachable
from stockade.client.transport.http import Answer, Request
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import (
    LeaderNotAvailable,
    NotEnoughReplicas,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
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


def test_a_quota_that_is_used_is_waited_for_also_by_the_first_request(cluster: FakeCluster) -> None:
    """Every command begins with this request: one whose principal had just read much failed at once."""
    refusals = cluster.refusals_of["/v1/cluster"] = [ThrottlingQuotaExceeded(retry_after_ms=20) for _ in range(2)]

    async def work(client: Client) -> None:
        assert [node.url for node in (await client.connect()).nodes] == cluster.nodes
        refusals.extend(2 * [ThrottlingQuotaExceeded(retry_after_ms=10 * client.config.delivery_timeout_ms)])
        with pytest.raises(ThrottlingQuotaExceeded):
            await client.connect()

    use(cluster, work)


def test_connecting_to_nothing_fails_at_once() -> None:
    async def run() -> None:
        async with Client("http://127.0.0.1:9") as client:
            with pytest.raises(ClusterUnreachable):
                await client.connect()

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


@pytest.mark.parametrize(
    "order",
    [
        lambda client: client.removal(node_id="n1"),
        lambda client: client.remove_node("n1"),
        lambda client: client.remove_zone("a", if_plan="0"),
    ],
)
def test_a_removal_for_which_there_are_too_few_nodes_is_refused_at_once(
    order: Callable[[Client], Awaitable[object]],
) -> None:
    """Nodes that are away count, so waiting helped nothing: `cluster remove --plan` said so after 30 s."""
    asked = []

    async def once(request: Request) -> Answer:
        asked.append(request.path)
        raise NotEnoughReplicas("no other node has room") if len(asked) > 1 else LeaderNotAvailable()

    async def run() -> None:
        async with Client(ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=1)) as client:
            client.calls.once = once  # type: ignore[method-assign]
            with pytest.raises(NotEnoughReplicas, match="no other node has room"):
                await order(client)

    asyncio.run(run())
    assert len(asked) == 2, "only the election was waited for"

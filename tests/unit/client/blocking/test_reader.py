import asyncio
import pickle

import pytest

from stockade.client.blocking.reader import BlockingClient
from stockade.client.config import ClientConfig, Credentials
from stockade.client.producer.producer import Producer
from stockade.partition.errors import OffsetOutOfRange, UnknownTopicOrPartition

from ..fake_cluster import FakeCluster, Fault


def filled(cluster: FakeCluster) -> BlockingClient:
    cluster.create("t")
    config = ClientConfig(bootstrap=tuple(cluster.nodes), retry_backoff_ms=1, retry_backoff_ms_max=5)

    async def run() -> None:
        async with Producer(config) as producer:
            await (await producer.send_batch("t", 0, [b"a", b"b", b"c"]))
            await (await producer.send_batch("t", 0, [b"d"]))

    asyncio.run(run())
    return BlockingClient(config)


def test_a_blocking_client_reads_topics_offsets_and_batches(cluster: FakeCluster) -> None:
    client = filled(cluster)
    assert len(client.topic("t").partitions) == 1
    assert client.offsets("t", 0) == (0, 4)
    base, batches = client.fetch_arrow("t", 0, 2)
    assert (base, [batch.column("value").to_pylist() for batch in batches]) == (0, [[b"a", b"b", b"c"], [b"d"]])
    assert client.fetch_arrow("t", 0, 4) == (4, [])
    base, batches = client.fetch_arrow("t", 0, 0, max_bytes=1)
    assert [batch.num_rows for batch in batches] == [3]
    client.close()


def test_a_blocking_client_uses_the_credentials_of_its_configuration_by_default() -> None:
    config = ClientConfig(token="of-the-config")
    assert BlockingClient(config).credentials == Credentials(token="of-the-config")
    other = pickle.loads(pickle.dumps(BlockingClient(config, Credentials(token="other"))))
    assert other.credentials == Credentials(token="other")


def test_faults_and_a_dead_node_are_waited_out(cluster: FakeCluster) -> None:
    client = filled(cluster)
    cluster.read_faults = [Fault.LOSE_REPLY, Fault.UNAVAILABLE, Fault.MOVED, Fault.GATEWAY_TIMEOUT]
    assert client.fetch_arrow("t", 0, 0)[0] == 0
    cluster.kill(cluster.nodes[0])
    for _ in range(3):
        assert client.offsets("t", 0) == (0, 4)
    client.close()


def test_refusals_are_raised(cluster: FakeCluster) -> None:
    client = filled(cluster)
    with pytest.raises(UnknownTopicOrPartition):
        client.topic("nowhere")
    with pytest.raises(OffsetOutOfRange) as refused:
        client.fetch_arrow("t", 0, 5)
    assert (refused.value.fields["log_start"], refused.value.fields["log_end"]) == (0, 4)
    client.close()


def test_a_blocking_client_with_open_connections_can_be_pickled(cluster: FakeCluster) -> None:
    client = filled(cluster)
    client.offsets("t", 0)
    copy = pickle.loads(pickle.dumps(client))
    assert copy.offsets("t", 0) == (0, 4)
    copy.close()
    client.close()

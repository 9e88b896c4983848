"""A topic's quota of bytes on real nodes: what is beyond it is refused, and taken when there is room."""

import asyncio
from typing import Any

from stockade import Client, ClientConfig, Producer
from stockade.cli.local_cluster.cluster import LocalCluster

from .api import Answer, Topic, call, eventually, expect

QUOTA = 100_000
LINE = "x" * 1000


def created(cluster: LocalCluster, name: str) -> Topic:
    """A topic with the quota, in a cluster that has got its first level meanwhile."""
    url = cluster.nodes[0].url
    eventually(lambda: call("GET", f"{url}/v1/cluster").json["feature_level"] == 2)
    topic = Topic(url, name)
    topic.create(partitions=2, config={"quota_bytes": QUOTA})
    return topic


def filled(topic: Topic) -> tuple[int, Answer]:
    """How many appends the partition took, and the answer to the one that it did not take."""
    for number in range(QUOTA // len(LINE) + 1):
        answer = topic.append(LINE)
        if answer.status != 200:
            return number, answer
    raise AssertionError("the partition took more than its quota")


def test_appends_beyond_a_topics_quota_are_refused_on_every_route_until_a_trim(cluster: LocalCluster) -> None:
    topic = created(cluster, "bounded")
    stored, refused = filled(topic)
    problem = expect(507, refused)
    assert problem["code"] == "STORAGE_QUOTA_EXCEEDED"
    assert problem["kept_bytes"] <= problem["quota_bytes"] == QUOTA < problem["kept_bytes"] + 2 * len(LINE)
    assert expect(200, call("GET", f"{topic.url}/partitions/0/offsets"))["log_end"] == stored
    stage = f"{topic.url}/partitions/0/stages/s"
    expect(507, call("PUT", stage, LINE.encode(), headers={"Content-Type": "text/plain"}))
    expect(200, topic.append(LINE, partition=1))
    expect(200, call("POST", f"{topic.url}/partitions/0/trim", {"before": -1}))
    expect(200, topic.append(LINE))


def test_a_producer_waits_for_room_in_a_topics_quota_and_loses_nothing(cluster: LocalCluster) -> None:
    topic = created(cluster, "waiting")
    stored, _ = filled(topic)
    config = ClientConfig(bootstrap=(cluster.nodes[1].url,))

    async def scenario() -> list[Any]:
        async with Producer(config) as producer, Client(config) as client:
            waiting = [await producer.send("waiting", LINE.encode(), partition=0) for _ in range(3)]
            flushing = asyncio.create_task(producer.flush())
            while not producer.metrics().repeated_attempts:
                assert (await client.offsets("waiting", 0)).log_end == stored
            await client.change_topic("waiting", config={"quota_bytes": 2 * QUOTA})
            await flushing
            return [await each for each in waiting]

    receipts = asyncio.run(scenario())
    assert [each.offset for each in receipts] == [stored, stored + 1, stored + 2]

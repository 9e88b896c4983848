"""What is gone leaves the memory: three nodes on a clock of their own make and delete topics, and nothing piles up.

A cluster that makes and deletes topics for years must not grow by them. The cluster is that of the walks, so each run
of the test makes the same calls; caches that have a bound of their own are left out.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_process import CausalLoop, run
from three_nodes import NODES, Client, Cluster

CACHES = ("stockade.http_api.fast_path.", "stockade.http_api.request.stalls.", "stockade.partition.api.cluster.Stall")
"""The heads of the latest 1,024 requests, whose paths name the topics; and the latest 100 stalls, which a busy machine
brings about.
"""
SETTLE_S = 5.0
"""Virtual seconds in which a deleted topic has left every node."""


async def life_of_a_topic(cluster: Cluster, clients: list[Client], name: str) -> None:
    """Made, written on every partition, read and deleted."""
    topic = f"/v1/topics/{name}"
    await clients[0].ask("POST", "/v1/topics", {"name": name, "partitions": 4})
    for partition, client in enumerate((*clients, clients[0])):
        records = f"{topic}/partitions/{partition}/records"
        assert status(await client.send("POST", records, b"value", **{"Content-Type": "text/plain"})) == 200
        await client.ask("GET", f"{records}?offset=0")
    assert status(await clients[0].send("DELETE", topic)) == 204
    await cluster.pass_time(SETTLE_S)


def status(answer: bytes) -> int:
    return int(answer.split(maxsplit=2)[1])


def objects() -> Counter[str]:
    """How many there are of each class of the product."""
    kinds = (type(each) for each in gc.get_objects())
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if isinstance(kind.__module__, str))
    return Counter(name for name in names if name.startswith("stockade.") and not name.startswith(CACHES))


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector of circles is off: on a node it looks at old objects once an hour, or less often."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_nothing_of_deleted_topics_stays_in_memory_nor_waits_for_the_garbage_collector(tmp_path: Path) -> None:
    async def main(loop: CausalLoop) -> None:
        cluster = Cluster(loop, tmp_path)
        await cluster.found(1)
        clients = [await Client.to(node_id) for node_id in NODES]
        counts = []
        for number in range(9):
            await life_of_a_topic(cluster, clients, f"t{number}")
            counts.append(objects())
        before, after = counts[2], counts[-1]
        grown = {name: (before[name], count) for name, count in after.items() if count >= before[name] + 6}
        assert not grown, "of these there is one more, or more, for each topic that was made and deleted"
        await cluster.close()

    run(main)

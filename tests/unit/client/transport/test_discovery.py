"""A client learns the cluster's nodes from the cluster, without being told to, and with few questions."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.producer.producer import Producer
from stockade.client.session.session import Session
from stockade.client.transport import discovery as discovery_module
from stockade.client.transport.discovery import AGAIN_AFTER_FAILURE_S, AGAIN_S, Discovery
from stockade.client.transport.outage import Outage, _present
from stockade.partition.api.cluster import Cluster, LeaderInfo, Node
from stockade.partition.errors import LeaderNotAvailable, StockadeError

from ..fake_cluster import FakeCluster


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(discovery_module, "time", made)
    return made


def one_url(cluster: FakeCluster) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(cluster.nodes[:1]), linger_ms=0, retry_backoff_ms=1)


def questions(cluster: FakeCluster) -> int:
    return cluster.paths("GET").count("/v1/cluster")


def test_a_session_outlives_the_only_node_that_its_client_was_given(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        async with Client(one_url(cluster)) as client, Session(client, "me", ttl_ms=1000) as session:
            fence = await session.acquire("t")
            await cluster.seen("GET", 1, "/v1/cluster")
            await cluster.seen("PUT", 1)
            await asyncio.to_thread(cluster.kill, cluster.nodes[0])
            await cluster.seen("PUT", len(cluster.paths("PUT")) + 4)  # more than a ttl
            assert (session.error, fence.error) == (None, None)

    asyncio.run(run())


def test_many_requests_are_one_question_and_a_client_that_connects_has_its_answer(cluster: FakeCluster) -> None:
    async def run() -> None:
        async with Client(one_url(cluster)) as client:
            for _ in range(20):
                _ = await client.topics()
            await cluster.seen("GET", 1, "/v1/cluster")
        async with Client(one_url(cluster)) as client:
            _ = await client.connect()
            for _ in range(20):
                _ = await client.topics()
        assert questions(cluster) == 2

    asyncio.run(run())


def test_a_producer_that_runs_for_long_hears_of_nodes_that_came_later(cluster: FakeCluster, clock: Clock) -> None:
    cluster.create("t")
    later = cluster.nodes.pop()

    async def run() -> None:
        async with Producer(one_url(cluster)) as producer:
            known = producer.client.calls._transport
            await (await producer.send("t", b"before"))
            await cluster.seen("GET", 1, "/v1/cluster")
            cluster.nodes.append(later)
            clock.now_s += AGAIN_S
            await (await producer.send("t", b"after"))
            async with asyncio.timeout(10):
                while later not in known.nodes:
                    await (await producer.send("t", b"and so on"))
        assert questions(cluster) == 2

    asyncio.run(run())


def asking(work: Callable[[Discovery, list[Cluster | StockadeError], list[str]], Awaitable[None]]) -> None:
    """``work`` with a discovery, what its questions are answered, and the nodes that it has learned."""

    async def run() -> None:
        answers, learned = list[Cluster | StockadeError](), list[str]()

        async def ask() -> Cluster:
            answer = answers.pop(0)
            if isinstance(answer, StockadeError):
                raise answer
            return answer

        discovery = Discovery(ask, learned.append)
        await work(discovery, answers, learned)
        await discovery.close()

    asyncio.run(run())


def of(url: str) -> Cluster:
    nodes = [Node(node_id="n", url=url, raft_address="a:1", zone=None, alive=True)]
    return Cluster(cluster_id="c", node_id="n", version="0", controller=LeaderInfo(None, None, 1), nodes=nodes)


async def answered(discovery: Discovery) -> None:
    """A request is answered, and what follows from that happens."""
    discovery.answered()
    if discovery._asking is not None:
        await discovery._asking


def test_a_question_that_fails_is_asked_again_soon_and_not_at_once(clock: Clock) -> None:
    async def work(discovery: Discovery, answers: list[Cluster | StockadeError], learned: list[str]) -> None:
        answers += [LeaderNotAvailable(), of("http://a")]
        for _ in range(3):
            await answered(discovery)
        assert len(answers) == 1
        clock.now_s += AGAIN_AFTER_FAILURE_S
        await answered(discovery)
        assert learned == ["http://a"]

    asking(work)


def test_it_is_asked_once_in_a_while_and_only_after_an_answer(clock: Clock) -> None:
    async def work(discovery: Discovery, answers: list[Cluster | StockadeError], learned: list[str]) -> None:
        answers += [of("http://a"), of("http://b")]
        for _ in range(3):
            await answered(discovery)
        clock.now_s += AGAIN_S - 1
        await answered(discovery)
        assert learned == ["http://a"]
        clock.now_s += 1
        await answered(discovery)
        assert learned == ["http://a", "http://b"]

    asking(work)


def test_a_question_is_no_part_of_the_request_after_which_it_is_asked(cluster: FakeCluster) -> None:
    """A warning about that request would name what the question met with; its trace would have a request more."""

    async def run() -> None:
        seen = []

        async def ask() -> Cluster:
            seen.append(_present.get())
            return of("http://a")

        with Outage().over("a call", 1.0):
            await answered(Discovery(ask, lambda _: None))
        assert seen == [None]

    asyncio.run(run())

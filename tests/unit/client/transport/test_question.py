"""What a client asks beside the application's calls: seldom, one question at a time, and never in a call's name."""

import asyncio
import logging

import pytest

from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientClosed
from stockade.client.producer.producer import Producer
from stockade.client.session.session import Session
from stockade.client.transport import question as question_module
from stockade.client.transport.calls import NODES_AGAIN_S
from stockade.client.transport.outage import Outage, _present
from stockade.client.transport.question import AGAIN_AFTER_FAILURE_S, Question
from stockade.partition.errors import LeaderNotAvailable, PermissionDenied, StockadeError

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
    monkeypatch.setattr(question_module, "time", made)
    return made


def one_url(cluster: FakeCluster) -> ClientConfig:
    return ClientConfig(bootstrap=tuple(cluster.nodes[:1]), linger_ms=0, retry_backoff_ms=1)


def questions(cluster: FakeCluster) -> int:
    return cluster.paths("GET").count("/v1/cluster")


def test_a_session_outlives_the_only_node_that_its_client_was_given(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def run() -> None:
        async with Client(one_url(cluster)) as client, Session(client, "me", ttl_ms=3000) as session:
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
            clock.now_s += NODES_AGAIN_S
            await (await producer.send("t", b"after"))
            async with asyncio.timeout(10):
                while later not in known.nodes:
                    await (await producer.send("t", b"and so on"))
        assert questions(cluster) == 2

    asyncio.run(run())


AGAIN_S = 60.0


class Asked:
    """A question whose answers are ``refusals``, then nothing but answers; ``count``: how often it was asked."""

    def __init__(self, *refusals: StockadeError) -> None:
        self.question = Question("the weather", self._ask, AGAIN_S)
        self.refusals = list(refusals)
        self.count = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def _ask(self) -> None:
        self.count += 1
        await self.may_answer.wait()
        if self.refusals:
            raise self.refusals.pop(0)

    async def looked_at(self) -> int:
        """It is asked if it is due, and answered; how often it was asked."""
        self.question.if_due()
        if self.question._task is not None:
            await asyncio.wait([self.question._task])
        return self.count


def test_a_question_is_asked_once_in_its_period(clock: Clock) -> None:
    async def run() -> None:
        asked = Asked()
        assert [await asked.looked_at() for _ in range(3)] == [1, 1, 1]
        clock.now_s += AGAIN_S - 1
        assert await asked.looked_at() == 1
        clock.now_s += 1
        assert await asked.looked_at() == 2
        asked.question.put_off()
        clock.now_s += AGAIN_S - 1
        assert await asked.looked_at() == 2

    asyncio.run(run())


def test_a_question_that_the_cluster_fails_to_answer_is_asked_again_soon_and_not_at_once(clock: Clock) -> None:
    async def run() -> None:
        asked = Asked(LeaderNotAvailable())
        assert [await asked.looked_at() for _ in range(3)] == [1, 1, 1]
        clock.now_s += AGAIN_AFTER_FAILURE_S
        assert await asked.looked_at() == 2

    asyncio.run(run())


def test_a_refusal_that_will_not_pass_is_not_asked_for_again_and_again(clock: Clock) -> None:
    async def run() -> None:
        asked = Asked(PermissionDenied())
        assert await asked.looked_at() == 1
        clock.now_s += AGAIN_AFTER_FAILURE_S
        assert await asked.looked_at() == 1

    asyncio.run(run())


def test_one_question_is_under_way_at_a_time_however_long_it_takes(clock: Clock) -> None:
    async def run() -> None:
        asked = Asked()
        asked.may_answer.clear()
        asked.question.if_due()
        await asyncio.sleep(0)
        clock.now_s += 2 * AGAIN_S
        asked.question.if_due()
        await asyncio.sleep(0)
        assert asked.count == 1
        await asked.question.close()

    asyncio.run(run())


def test_calls_that_need_a_new_answer_share_one_that_was_asked_for_after_they_came() -> None:
    async def run() -> None:
        asked = Asked()
        asked.may_answer.clear()
        asked.question.if_due()
        await asyncio.sleep(0)
        calls = [asyncio.create_task(asked.question.anew()) for _ in range(3)]
        await asyncio.sleep(0)
        asked.may_answer.set()
        await asyncio.gather(*calls)
        assert asked.count == 2

    asyncio.run(run())


def test_a_call_soon_after_an_answer_asks_no_more(clock: Clock) -> None:
    async def run() -> None:
        asked = Asked()
        for _ in range(3):
            await asked.question.anew(pause_s=1.0)
        assert asked.count == 1
        clock.now_s += 1.0
        await asked.question.anew(pause_s=1.0)
        assert asked.count == 2

    asyncio.run(run())


def test_each_call_gets_the_refusal_and_a_cancelled_one_takes_the_answer_from_no_other() -> None:
    async def run() -> None:
        asked = Asked(*(PermissionDenied("no") for _ in range(2)))
        asked.may_answer.clear()
        calls = [asyncio.create_task(asked.question.anew()) for _ in range(3)]
        await asyncio.sleep(0)
        assert calls[0].cancel()
        asked.may_answer.set()
        got = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in got] == [asyncio.CancelledError, PermissionDenied, PermissionDenied]
        assert got[1] is not got[2], "one would keep the frames of the other"

    asyncio.run(run())


def test_a_call_that_waits_when_the_client_is_closed_is_told() -> None:
    async def run() -> None:
        asked = Asked()
        asked.may_answer.clear()
        call = asyncio.create_task(asked.question.anew())
        await asyncio.sleep(0)
        await asked.question.close()
        with pytest.raises(ClientClosed):
            await call

    asyncio.run(run())


def test_a_bug_in_a_question_is_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    async def bug() -> None:
        raise ValueError("a bug")

    async def run() -> None:
        question = Question("the weather", bug, AGAIN_S)
        with pytest.raises(ValueError, match="a bug"):
            await question.anew()

    asyncio.run(run())
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.ERROR, "the weather: not known anew: a bug")
    ]


def test_a_question_is_no_part_of_the_request_after_which_it_is_asked() -> None:
    """A warning about that request would name what the question met with; its trace would have a request more."""

    async def run() -> None:
        seen = []

        async def ask() -> None:
            seen.append(_present.get())

        with Outage().over("a call", 1.0):
            await Question("the weather", ask, AGAIN_S).anew()
        assert seen == [None]

    asyncio.run(run())

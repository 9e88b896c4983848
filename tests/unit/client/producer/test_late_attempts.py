"""A batch has its outcome before its attempt begins: it is not sent any more, and no other batch suffers from it.

The sender's clock jumps for a moment where a test says so: there a batch expires, and nowhere else.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stockade.client.api.client import Client
from stockade.client.errors import ClientFault
from stockade.client.producer import sender
from stockade.client.producer.delivery import Delivery
from stockade.client.producer.producer import Producer
from stockade.client.producer.sender import Route
from stockade.partition.errors import NotLeaderOrFollower, NotOwner, StockadeError

from ..fake_cluster import FakeCluster, Fault
from .test_producer import config

LONG_S = 1_000.0
"""Beyond every delivery timeout."""


@dataclass
class Clock:
    """The sender's clock."""

    ahead_s: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sender, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def no_bug(caplog: pytest.LogCaptureFixture) -> Any:
    """Neither the library nor the loop has logged an error."""
    yield
    assert [each.getMessage() for each in caplog.get_records("call") if each.levelno >= logging.ERROR] == []


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            producer = await Producer(config(cluster, **settings), name="writer").start()
            try:
                await work(producer)
            finally:
                await producer.abort()

    cluster.create("t", 3)
    asyncio.run(run())


def expire(producer: Producer, clock: Clock, partition: int = 0) -> None:
    """The delivery timeout of this partition's batches ends, and its timer fires."""
    clock.ahead_s = LONG_S
    producer._running.pump(route(producer, partition))
    clock.ahead_s = 0.0


def route(producer: Producer, partition: int) -> Route:
    return next(each for each in producer._running.routes if each.partition == partition)


async def end(delivery: Delivery) -> str:
    """The offset of a delivery; or its code, and what became of its record."""
    try:
        return str((await delivery).offset)
    except StockadeError as error:
        return f"{error.code} {error.fields['outcome']['state']}"


async def begun(producer: Producer, *partitions: int) -> list[Delivery]:
    """One record to each partition; the leader is known, and none has gone out."""
    _ = await producer.client.metadata.topic("t")
    return [await producer.send("t", b"late", partition=partition) for partition in partitions]


TURNS = {"before the turn of the loop ends": 0, "before the task of its attempt runs": 1}


@pytest.mark.parametrize("is_next_turn", TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("on_error", ["continue", "halt_partition"])
@pytest.mark.parametrize("others", [(), (1,), (1, 2)], ids=lambda others: f"{len(others)} others")
def test_a_batch_that_expires_before_its_attempt_begins_is_not_sent_and_its_partition_goes_on(
    cluster: FakeCluster, clock: Clock, is_next_turn: int, on_error: str, others: tuple[int, ...]
) -> None:
    async def work(producer: Producer) -> None:
        late, *rest = await begun(producer, 0, *others)
        if is_next_turn:
            asyncio.get_running_loop().call_soon(expire, producer, clock)  # behind `_send_due`, before the tasks
            await asyncio.sleep(0)
        else:
            expire(producer, clock)
        assert late.is_done
        assert await end(late) == "REQUEST_TIMED_OUT unknown"
        assert [await end(each) for each in rest] == ["0"] * len(others)
        if on_error == "halt_partition":
            assert (await producer.recover("t", 0)).records == []
        assert await end(await producer.send("t", b"next", partition=0)) == "0"

    produce(cluster, work, on_error=on_error)
    assert cluster.values("t", 0) == [b"next"]


def test_when_all_batches_of_a_request_expire_before_it_begins_there_is_no_request(
    cluster: FakeCluster, clock: Clock
) -> None:
    async def work(producer: Producer) -> None:
        deliveries = await begun(producer, 0, 1)
        asyncio.get_running_loop().call_soon(expire, producer, clock, 0)
        asyncio.get_running_loop().call_soon(expire, producer, clock, 1)
        assert [await end(each) for each in deliveries] == ["REQUEST_TIMED_OUT unknown"] * 2

    produce(cluster, work)
    assert not [path for path in cluster.paths("POST") if "append" in path or "records" in path]


REFUSALS = {"part moved": True, "request refused": False}


@pytest.mark.parametrize("is_of_part", REFUSALS.values(), ids=REFUSALS)
def test_a_part_that_expired_under_way_is_not_sent_once_more_when_its_leader_has_moved(
    cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_of_part: bool
) -> None:
    moved = NotLeaderOrFollower(None, None)
    under_way, answer = asyncio.Event(), asyncio.Event()

    async def append_parts(self: Client, node: str, parts: list[Any], settle: Any) -> StockadeError | None:
        under_way.set()
        await answer.wait()
        if not is_of_part:
            return moved
        for place in range(len(parts)):
            settle(place, moved)
        return None

    monkeypatch.setattr(Client, "append_parts", append_parts)

    async def work(producer: Producer) -> None:
        late, other = await begun(producer, 0, 1)
        await under_way.wait()
        expire(producer, clock)
        answer.set()
        assert [await end(each) for each in (late, other)] == ["REQUEST_TIMED_OUT unknown", "0"]
        assert await end(await producer.send("t", b"next", partition=0)) == "0"

    produce(cluster, work, on_error="continue")
    assert cluster.values("t", 0) == [b"next"]


def test_a_batch_failed_by_a_bug_in_its_queue_is_not_sent_and_its_partition_can_be_recovered(
    cluster: FakeCluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(producer: Producer) -> None:
        [late] = await begun(producer, 0)
        producer._running._broken(route(producer, 0), KeyError("injected"))
        assert await end(late) == f"{ClientFault.code} unknown"
        assert (await producer.recover("t", 0)).records == []
        assert await end(await producer.send("t", b"next", partition=0)) == "0"

    produce(cluster, work)
    caplog.clear()  # the bug that was injected
    assert cluster.values("t", 0) == [b"next"]


def test_after_an_abort_no_batch_of_a_fenced_partition_waits_to_learn_its_outcome(
    cluster: FakeCluster, clock: Clock
) -> None:
    """A fenced partition sends batches of unknown outcome again, to learn it: not so when its producer is aborted."""
    cluster.fault_for = lambda: Fault.HOLD

    async def work(producer: Producer) -> None:
        [held] = await begun(producer, 0)
        await cluster.seen("POST", len(cluster.paths("POST")) + 1)
        producer._running.halt([route(producer, 0)], NotOwner())
        await producer.abort()
        assert held.is_done
        assert await end(held) == "NOT_OWNER unknown"

    produce(cluster, work)

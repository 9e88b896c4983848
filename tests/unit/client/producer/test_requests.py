"""Batches of many partitions share a request to their leader, and each keeps its own outcome, order and pace."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from waiting import until

from stockade.client.api import client
from stockade.client.config import ClientConfig
from stockade.client.errors import ClientFault
from stockade.client.producer.delivery import Delivery
from stockade.client.producer.leader_window import REQUEST_BYTES_MAX, REQUESTS_MAX, LeaderWindow, requests
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.batch import Batch
from stockade.client.producer.results import ProducerErrors
from stockade.partition.api.records import PARTS_MAX
from stockade.partition.errors import MessageTooLarge, NotFound, ThrottlingQuotaExceeded

from ..fake_cluster import FakeCluster, Fault

SHARED = "/v1/append"
WIDTH = 8


def produce(cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_ms_max": 5}
        config = ClientConfig(bootstrap=tuple(cluster.nodes), **{**quick, **settings})
        async with Producer(config, name="writer") as producer:
            await work(producer)

    cluster.create("t", WIDTH)
    asyncio.run(run())


async def send(producer: Producer, *values: bytes, partitions: range = range(WIDTH)) -> list[Delivery]:
    """Each value to each partition, without a turn of the event loop in between."""
    return [await producer.send("t", value, partition=partition) for value in values for partition in partitions]


def test_batches_due_in_one_turn_share_one_request_to_the_leader(cluster: FakeCluster) -> None:
    async def work(producer: Producer) -> None:
        receipts = [await each for each in await send(producer, b"a")]
        assert [(receipt.partition, receipt.offset) for receipt in receipts] == [(part, 0) for part in range(WIDTH)]

    produce(cluster, work)
    assert [path for path in cluster.paths("POST") if "append" in path or "records" in path] == [SHARED]
    assert cluster.parts == [("t", partition) for partition in range(WIDTH)]


def test_a_batch_that_is_alone_takes_the_route_of_its_partition(cluster: FakeCluster) -> None:
    async def work(producer: Producer) -> None:
        for partition in range(WIDTH):
            _ = await (await producer.send("t", b"a", partition=partition))

    produce(cluster, work)
    assert SHARED not in cluster.paths("POST")


def test_batches_for_two_leaders_share_no_request(cluster: FakeCluster) -> None:
    async def work(producer: Producer) -> None:
        _ = await producer.client.metadata.topic("t")
        for partition in range(4):
            producer.client.metadata.heard("t", partition, cluster.nodes[1])
        _ = [await each for each in await send(producer, b"a")]

    produce(cluster, work)
    assert cluster.paths("POST").count(SHARED) == 2


def test_a_part_that_is_refused_fails_alone(cluster: FakeCluster) -> None:
    cluster.faults_at = {3: Fault.TOO_LARGE}

    async def work(producer: Producer) -> None:
        deliveries = await send(producer, b"a")
        for delivery in deliveries[:3] + deliveries[4:]:
            assert (await delivery).offset == 0
        with pytest.raises(MessageTooLarge):
            _ = await deliveries[3]

    produce(cluster, work)


def test_a_part_without_an_answer_holds_up_no_other_partition(cluster: FakeCluster) -> None:
    """Neither its answer nor its next batches: all partitions but one go on while that one hangs."""
    cluster.faults_at = {3: Fault.HOLD}

    async def work(producer: Producer) -> None:
        slow: list[Delivery] = []
        for number in range(REQUESTS_MAX + 2):
            deliveries = await send(producer, b"%d" % number)
            slow.append(deliveries.pop(3))
            assert [(await each).offset for each in deliveries] == [number] * (WIDTH - 1)
        assert not any(each.is_done for each in slow)
        cluster.release_held()
        assert [(await each).offset for each in slow] == list(range(REQUESTS_MAX + 2))

    produce(cluster, work)


def test_no_batch_overtakes_one_of_its_partition_whose_request_is_not_answered(cluster: FakeCluster) -> None:
    """Its body may still be on its way when the last byte was written; the first answer says that it came."""
    cluster.fault_for = lambda: Fault.HOLD

    async def work(producer: Producer) -> None:
        first = await send(producer, b"a")
        await until(lambda: len(cluster.parts) == WIDTH)
        second = await send(producer, b"b")
        await asyncio.sleep(0)
        assert producer.metrics().attempts == WIDTH
        cluster.fault_for = lambda: None
        cluster.release_held()
        assert [(await each).offset for each in first + second] == [0] * WIDTH + [1] * WIDTH
        assert producer.metrics().repeated_attempts == 0

    produce(cluster, work)


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.TIMED_OUT, Fault.GATEWAY_TIMEOUT])
def test_a_connection_that_breaks_leaves_each_part_unknown_on_its_own(cluster: FakeCluster, fault: Fault) -> None:
    cluster.faults = [None, None, fault]

    async def work(producer: Producer) -> None:
        receipts = [await each for each in await send(producer, b"a")]
        assert [receipt.offset for receipt in receipts] == [0] * WIDTH
        assert producer.metrics().repeated_attempts >= 1

    produce(cluster, work)
    assert [cluster.values("t", partition) for partition in range(WIDTH)] == [[b"a"]] * WIDTH


@pytest.mark.parametrize("fault", [Fault.MOVED, Fault.LEADERLESS])
def test_a_part_that_the_node_does_not_lead_is_sent_to_its_leader_in_the_same_attempt(
    cluster: FakeCluster, fault: Fault
) -> None:
    cluster.faults = [None, fault]

    async def work(producer: Producer) -> None:
        assert [(await each).offset for each in await send(producer, b"a")] == [0] * WIDTH
        assert producer.metrics().repeated_attempts == 0

    produce(cluster, work)
    assert [path for path in cluster.paths("POST") if "records" in path] == [
        "/v1/topics/t/partitions/1/records?topic_id=1"
    ]


def test_after_the_refusal_of_a_whole_request_each_batch_is_sent_alone(cluster: FakeCluster) -> None:
    """As from a node that does not know the route; each batch then has a refusal of its own, or none."""
    cluster.refusals = [NotFound("no such route", what="route")]

    async def work(producer: Producer) -> None:
        assert [(await each).offset for each in await send(producer, b"a")] == [0] * WIDTH

    produce(cluster, work)
    assert len([path for path in cluster.paths("POST") if "records" in path]) == WIDTH


def test_a_busy_node_gets_the_batches_again_later_and_together(cluster: FakeCluster) -> None:
    cluster.refusals = [ThrottlingQuotaExceeded(retry_after_ms=20)]

    async def work(producer: Producer) -> None:
        assert [(await each).offset for each in await send(producer, b"a")] == [0] * WIDTH
        assert producer.metrics().repeated_attempts == WIDTH

    produce(cluster, work)
    assert cluster.paths("POST").count(SHARED) >= 2


def test_a_part_goes_to_the_new_leader_while_the_old_one_stands_still(cluster: FakeCluster) -> None:
    cluster.fault_for = lambda: Fault.HOLD

    async def work(producer: Producer) -> None:
        deliveries = await send(producer, b"a")
        await until(lambda: len(cluster.parts) == WIDTH)
        cluster.fault_for = lambda: None
        cluster.leader = 1
        assert [(await each).offset for each in deliveries] == [0] * WIDTH
        cluster.release_held()  # what the old leader got is stored by now: not a second time

    produce(cluster, work, request_timeout_ms=110_000, standstill_ms=100)
    assert [cluster.values("t", partition) for partition in range(WIDTH)] == [[b"a"]] * WIDTH


def test_aborting_settles_every_part_once(cluster: FakeCluster) -> None:
    cluster.fault_for = lambda: Fault.HOLD

    async def work(producer: Producer) -> None:
        sent = await send(producer, b"a")
        await until(lambda: len(cluster.parts) == WIDTH)
        unsent = await send(producer, b"b")
        await producer.abort()
        outcomes = [each.failure.fields["outcome"]["state"] for each in sent + unsent if each.failure is not None]
        assert outcomes == ["unknown"] * WIDTH + ["absent"] * WIDTH

    with pytest.raises(ProducerErrors):
        produce(cluster, work)


@pytest.mark.parametrize("seed", range(5))
def test_every_partition_keeps_its_order_whatever_is_lost(cluster: FakeCluster, seed: int) -> None:
    chance = Random(seed)
    faults = [Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.TIMED_OUT, Fault.UNAVAILABLE, Fault.MOVED, Fault.LEADERLESS]
    cluster.fault_for = lambda: chance.choice(faults) if chance.random() < 0.1 else None
    values = [b"%d" % number for number in range(30)]

    async def work(producer: Producer) -> None:
        for value in values:
            deliveries = await send(producer, value)
            if chance.random() < 0.3:
                await deliveries[chance.randrange(WIDTH)]
        await producer.flush()

    produce(cluster, work, batch_records_max=3)
    assert [cluster.values("t", partition) for partition in range(WIDTH)] == [values] * WIDTH
    assert SHARED in cluster.paths("POST")


def batch_of(size: int) -> Batch:
    batch = Batch(0.0)
    batch.message = bytes(size)
    return batch


def test_requests_are_bounded_in_parts_and_bytes() -> None:
    def shared(*sizes: int) -> list[int]:
        return [len(each) for each in requests([(number, batch_of(size)) for number, size in enumerate(sizes)])]

    assert shared(*[1] * PARTS_MAX) == [PARTS_MAX]
    assert shared(*[1] * (PARTS_MAX + 1)) == [PARTS_MAX, 1]
    assert shared(REQUEST_BYTES_MAX - 1, 1, 1) == [2, 1]
    assert shared(1, REQUEST_BYTES_MAX + 1, 1) == [1, 1, 1]


def test_unanswered_requests_to_a_leader_are_bounded() -> None:
    window = LeaderWindow[str]()
    for number in range(REQUESTS_MAX):
        assert not window.is_full
        window.sent(number)
    assert window.is_full
    window.waiting = {"a": None, "b": None}
    assert window.answered("another") == []
    assert window.answered(0) == ["a", "b"]
    assert window.answered(0) == []
    assert not window.is_full


def test_a_request_that_is_not_answered_holds_up_the_next_one_for_a_moment_only(cluster: FakeCluster) -> None:
    """Partitions that hang, all of them in requests of their own, delay the others by OPENS_S and no longer."""
    cluster.faults_at = dict.fromkeys(range(REQUESTS_MAX + 1), Fault.HOLD)

    async def work(producer: Producer) -> None:
        for partition in range(REQUESTS_MAX):
            _ = await producer.send("t", b"a", partition=partition)
            await until(lambda wanted=partition + 1: len(cluster.paths("POST")) > wanted)  # type: ignore[misc]
        assert (await (await producer.send("t", b"a", partition=WIDTH - 1))).offset == 0
        cluster.release_held()

    produce(cluster, work)


def test_a_bug_while_parts_are_sent_fails_each_of_them(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: Any) -> Any:
        raise KeyError("injected")

    monkeypatch.setattr(client, "parts_body", bug)

    async def work(producer: Producer) -> None:
        deliveries = await send(producer, b"a")
        for delivery in deliveries:
            with pytest.raises(ClientFault):
                _ = await delivery

    produce(cluster, work)

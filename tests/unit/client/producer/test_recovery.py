"""A producer after a failure: it goes on, or halts and is recovered; and the ways to watch and steer what it sends."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from random import Random
from types import FrameType, ModuleType
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.errors import ProducerAborted
from stockade.client.loop_affinity import LoopAffinity
from stockade.client.producer.interceptors import intercepted_columns
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.batch import Receipt, Record
from stockade.client.producer.queue.partitioners import Choice
from stockade.client.producer.results import Failure
from stockade.client.retry import FAILURES_MAX, OPEN_S, Breaker
from stockade.partition.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    MessageTooLarge,
    ProducerFenced,
)
from stockade.partition.partitioner import partition_for_key

from ..fake_cluster import FakeCluster, Fault

KEY_OF_1_OF_3 = next(key for key in (b"a", b"b", b"c", b"d", b"e") if partition_for_key(key, 3) == 1)

ONE_AFTER_THE_OTHER = {"inflight_batches_max": 1}
"""Faults strike in the order of arrival, and two connections may swap that; test_renewal.py has the pipelines."""


def config(cluster: FakeCluster, **settings: Any) -> ClientConfig:
    quick = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_ms_max": 5}
    return ClientConfig(bootstrap=tuple(cluster.nodes), **{**quick, **settings})


def produce(
    cluster: FakeCluster, work: Callable[[Producer], Awaitable[None]], *, options: Any = None, **settings: Any
) -> None:
    async def run() -> None:
        async with Producer(config(cluster, **settings), name="writer", **(options or {})) as producer:
            await work(producer)

    asyncio.run(run())


async def send_and_settle(producer: Producer, *values: bytes, partition: int = 0) -> list[Receipt | Exception]:
    deliveries = [await producer.send_batch("t", partition, [value]) for value in values]
    return list(await asyncio.gather(*map(_outcome, deliveries)))


async def _outcome(delivery: Awaitable[Receipt]) -> Receipt | Exception:
    try:
        return await delivery
    except Exception as error:
        return error


def test_95_with_on_error_continue_only_the_refused_batch_fails_and_later_ones_are_stored_once(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    cluster.faults = [None, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        outcomes = await send_and_settle(producer, b"a", b"b", b"c", b"d")
        assert [type(outcome) for outcome in outcomes] == [Receipt, MessageTooLarge, Receipt, Receipt]
        assert producer.identity.producer_epoch == 1

    produce(cluster, work, on_error="continue", **ONE_AFTER_THE_OTHER)
    assert cluster.values("t") == [b"a", b"c", b"d"]


def test_103_the_epoch_rises_by_one_for_each_batch_that_fails_however_many_records_it_has(cluster: FakeCluster) -> None:
    """sarama raises it once a record, which wears the 16 bits of the epoch out."""
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE, None, Fault.TOO_LARGE, Fault.TOO_LARGE, None]

    async def work(producer: Producer) -> None:
        for number in range(5):
            delivery = await producer.send_batch("t", 0, [b"%d" % number] * 10)
            _ = await _outcome(delivery)
        assert producer.identity.producer_epoch == 3

    produce(cluster, work, on_error="continue", **ONE_AFTER_THE_OTHER)
    assert cluster.values("t") == [b"1"] * 10 + [b"4"] * 10


def test_114_a_halted_partition_is_recovered_after_its_tail_and_others_never_stopped(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    cluster.faults = [None, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        outcomes = await send_and_settle(producer, b"a", b"b", b"c")
        assert [type(outcome) for outcome in outcomes] == [Receipt, MessageTooLarge, MessageTooLarge]
        with pytest.raises(MessageTooLarge):
            _ = await producer.send_batch("t", 0, [b"d"])
        await (await producer.send_batch("t", 1, [b"other"]))
        tail = await producer.recover("t", 0)
        assert [record.value for record in tail.records] == [b"a"]
        assert [type(outcome) for outcome in await send_and_settle(producer, b"b", b"c")] == [Receipt, Receipt]
        assert [type(outcome) for outcome in await send_and_settle(producer, b"on", partition=1)] == [Receipt]

    produce(cluster, work, **ONE_AFTER_THE_OTHER)
    assert cluster.values("t") == [b"a", b"b", b"c"]
    assert cluster.values("t", 1) == [b"other", b"on"]


def test_113_a_halted_partition_says_why_each_time_it_is_asked_until_it_is_recovered(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        _ = await producer.send_batch("t", 0, [b"refused"])
        with pytest.raises(MessageTooLarge):
            await producer.flush()
        for _ in range(2):
            with pytest.raises(MessageTooLarge, match=r"the partition has halted, `recover` takes records again; why"):
                _ = await producer.send("t", b"refused", partition=0)
        await producer.recover("t", 0)
        await producer.flush()
        assert [type(outcome) for outcome in await send_and_settle(producer, b"taken")] == [Receipt]

    produce(cluster, work)
    assert cluster.values("t") == [b"taken"]


@pytest.mark.parametrize("partitioner", ["round_robin", "sticky", "murmur2"])
def test_keyless_records_avoid_a_halted_partition_until_it_is_recovered(cluster: FakeCluster, partitioner: str) -> None:
    cluster.create("t", 3)
    cluster.faults = [Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        assert isinstance((await send_and_settle(producer, b"refused", partition=1))[0], MessageTooLarge)
        places = {(await (await producer.send("t", b"placed"))).partition for _ in range(6)}
        assert places == {0, 2}
        with pytest.raises(MessageTooLarge):
            _ = await producer.send("t", b"named", partition=1)
        await producer.recover("t", 1)
        assert {(await (await producer.send("t", b"placed"))).partition for _ in range(6)} == {0, 1, 2}

    produce(cluster, work, options={"partitioner": partitioner})


@pytest.mark.parametrize("partitioner", ["round_robin", "sticky", "murmur2"])
def test_keyless_records_avoid_a_partition_without_a_leader(cluster: FakeCluster, partitioner: str) -> None:
    """002: Sarama's WritablePartitions."""
    cluster.create("t", 3)

    async def places(producer: Producer) -> set[int]:
        return {(await (await producer.send("t", b"placed"))).partition for _ in range(6)}

    async def work(producer: Producer) -> None:
        assert await places(producer) == {0, 1, 2}
        cluster.faults_at = {1: Fault.LEADERLESS}
        appends = len(cluster.paths("POST"))
        waiting = await producer.send("t", b"waits", partition=1)
        await cluster.seen("POST", appends + 2)
        assert await places(producer) == {0, 2}
        keyed = await producer.send("t", b"keyed", key=KEY_OF_1_OF_3)
        cluster.faults_at = {0: Fault.LEADERLESS, 1: Fault.LEADERLESS, 2: Fault.LEADERLESS}
        stuck = [await producer.send("t", b"all fail alike", partition=number) for number in (0, 2)]
        await cluster.seen("POST", len(cluster.paths("POST")) + 8)
        cluster.faults_at = {}
        for delivery in (waiting, *stuck):
            await delivery
        assert ((await keyed).partition == 1) == (partitioner == "murmur2")
        assert await places(producer) == {0, 1, 2}

    produce(cluster, work, options={"partitioner": partitioner})


def test_a_batch_leaves_when_it_has_the_bytes_or_records_to_flush_though_it_could_take_more(
    cluster: FakeCluster,
) -> None:
    """002: Flush.Messages and Flush.Bytes, beside Flush.MaxMessages."""
    cluster.create("t")

    async def by_records(producer: Producer) -> None:
        deliveries = [await producer.send("t", b"v", partition=0) for _ in range(3)]
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]

    async def by_bytes(producer: Producer) -> None:
        deliveries = [await producer.send("t", bytes(600), partition=0) for _ in range(2)]
        assert [(await delivery).offset for delivery in deliveries] == [3, 4]

    produce(cluster, by_records, linger_ms=60_000, flush_records=3)
    produce(cluster, by_bytes, linger_ms=60_000, flush_bytes=1200)
    assert len([path for path in cluster.paths("POST") if "records" in path]) == 2


def test_when_every_partition_is_halted_a_record_is_refused_with_what_halted_one(cluster: FakeCluster) -> None:
    cluster.create("t", 2)
    cluster.faults = [Fault.TOO_LARGE, Fault.TOO_LARGE]

    async def work(producer: Producer) -> None:
        for partition in (0, 1):
            await send_and_settle(producer, b"refused", partition=partition)
        for _ in range(3):
            with pytest.raises(MessageTooLarge):
                _ = await producer.send("t", b"nowhere to go")
        for partition in (0, 1):
            await producer.recover("t", partition)

    produce(cluster, work)


def test_recovering_a_partition_that_works_only_reads_its_tail(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await send_and_settle(producer, b"a")
        assert (await producer.recover("t", 0)).log_end == 1
        assert producer.identity.producer_epoch == 0

    produce(cluster, work)


def test_a_recovery_that_another_task_aborts_says_so_and_is_not_cancelled(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task raised CancelledError, which a TaskGroup passes over, though no task had cancelled it."""
    cluster.create("t")
    cluster.faults = [Fault.TOO_LARGE]
    asked = asyncio.Event()

    async def unanswered(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def run() -> None:
        producer = await Producer(config(cluster)).start()
        assert isinstance((await send_and_settle(producer, b"refused"))[0], MessageTooLarge)
        monkeypatch.setattr(producer.client, "init_producer", unanswered)
        recovering = asyncio.create_task(producer.recover("t", 0))
        await asked.wait()
        await producer.abort()
        with pytest.raises(ProducerAborted):
            await recovering

    asyncio.run(run())


def test_a_delivery_that_was_repeated_keeps_no_record_once_it_is_stored(cluster: FakeCluster) -> None:
    """The traceback of the last refusal had frames with the request's body."""
    cluster.create("t")

    async def work(producer: Producer) -> None:
        cluster.faults = [Fault.LOSE_REPLY]
        value = b"a value that is found nowhere else"
        delivery = await producer.send("t", value)
        assert (await delivery).duplicate
        found: list[object] = [delivery]
        seen: set[int] = set()
        while found:
            each = found.pop()
            if id(each) in seen or isinstance(each, type | ModuleType | Producer | LoopAffinity):
                continue
            seen.add(id(each))
            assert not (isinstance(each, bytes) and value in each)
            found += gc.get_referents(each) if not isinstance(each, FrameType) else each.f_locals.values()

    produce(cluster, work)


def test_a_producer_whose_name_was_taken_cannot_recover(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        cluster.init_producer("writer")
        outcomes = await send_and_settle(producer, b"zombie")
        assert isinstance(outcomes[0], ProducerFenced)
        with pytest.raises(ProducerFenced):
            await producer.recover("t", 0)

    produce(cluster, work)
    assert cluster.values("t") == []


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [("round_robin", [0, 1, 2, 0]), ("sticky", [0, 0, 0, 0]), (lambda choice: len(choice.record.value), [1, 1, 1, 1])],
)
def test_a_partitioner_decides_where_records_go(cluster: FakeCluster, partitioner: Any, expected: list[int]) -> None:
    cluster.create("t", 3)

    async def work(producer: Producer) -> None:
        receipts = [await delivery for delivery in [await producer.send("t", b"v", key=b"k") for _ in range(4)]]
        first = receipts[0].partition if isinstance(partitioner, str) else 0
        assert [(receipt.partition - first) % 3 for receipt in receipts] == expected

    produce(cluster, work, options={"partitioner": partitioner}, linger_ms=20)


def _fails(_: Choice) -> int:
    raise RuntimeError("no idea")


@pytest.mark.parametrize("partitioner", ["manual", _fails, lambda _: 3, lambda _: -1, lambda _: None])
def test_110_a_partitioner_without_an_answer_fails_one_record_only(cluster: FakeCluster, partitioner: Any) -> None:
    cluster.create("t", 3)

    async def work(producer: Producer) -> None:
        with pytest.raises(InvalidRequest):
            _ = await producer.send("t", b"lost")
        await (await producer.send("t", b"kept", partition=1))

    produce(cluster, work, options={"partitioner": partitioner})
    assert cluster.values("t", 1) == [b"kept"]


def test_an_unknown_partitioner_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="murmur2, sticky, round_robin, manual"):
        Producer(partitioner="random")


def test_109_interceptors_run_in_order_once_a_record_and_one_that_raises_is_skipped(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY]
    seen = []

    def count(topic: str, record: Record) -> Record:
        seen.append((topic, record.value))
        return record._replace(value=(record.value or b"") + b"1")

    def fail(topic: str, record: Record) -> Record:
        raise RuntimeError("broken")

    def forget(topic: str, record: Record) -> Record:
        return None  # type: ignore[return-value]

    def mark(topic: str, record: Record) -> Record:
        return record._replace(value=(record.value or b"") + b"2")

    async def work(producer: Producer) -> None:
        await (await producer.send("t", b"a"))
        await (await producer.send_batch("t", 0, [b"b", b"c"], keys=[b"k", None]))

    produce(cluster, work, options={"interceptors": [count, fail, forget, mark]})
    assert cluster.values("t") == [b"a12", b"b12", b"c12"]
    assert seen == [("t", b"a"), ("t", b"b"), ("t", b"c")]


def test_successes_and_errors_can_be_read_as_streams_that_end_with_the_producer(cluster: FakeCluster) -> None:
    cluster.create("t")
    cluster.faults = [None, Fault.TOO_LARGE]

    async def run() -> None:
        producer = await Producer(config(cluster, on_error="continue", **ONE_AFTER_THE_OTHER), name="writer").start()
        successes, errors = producer.successes(), producer.errors()
        await send_and_settle(producer, b"a", b"b", b"c")
        await producer.abort()
        assert [receipt.base_offset async for receipt in successes] == [0, 1]
        failures = [failure async for failure in errors]
        assert [(f.topic, f.partition, f.count, f.error.code) for f in failures] == [("t", 0, 1, "MESSAGE_TOO_LARGE")]
        assert isinstance(failures[0], Failure)

    asyncio.run(run())


def test_a_wait_for_the_next_outcome_can_be_given_up_and_the_stream_goes_on(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        successes = producer.successes()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(successes)
        await send_and_settle(producer, b"a")
        assert (await anext(successes)).base_offset == 0

    produce(cluster, work)


def test_unread_successes_hold_up_the_sender(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        successes = producer.successes()
        await (await producer.send_batch("t", 0, [b"x" * 3000]))
        waiting = asyncio.ensure_future(producer.send_batch("t", 0, [b"y" * 3000]))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert (await anext(successes)).base_offset == 0
        await (await waiting)

    produce(cluster, work, batch_bytes_max=4000, buffer_bytes_max=4000)


def test_a_breaker_opens_after_failures_in_a_row_and_one_success_closes_it() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_MAX - 1):
        breaker.failed(100.0)
    breaker.succeeded()
    for _ in range(FAILURES_MAX):
        assert breaker.closed_in_s(100.0) == 0
        breaker.failed(100.0)
    assert breaker.closed_in_s(101.0) == OPEN_S - 1
    assert breaker.closed_in_s(100.0 + OPEN_S) == 0
    breaker.failed(200.0)
    assert breaker.closed_in_s(200.0) == OPEN_S


@pytest.mark.parametrize("seed", range(6))
def test_a_producer_whose_name_was_forgotten_begins_anew_without_a_failure_or_a_duplicate(
    cluster: FakeCluster, seed: int
) -> None:
    """Answers and requests are lost meanwhile; the name is forgotten again and again while nothing is under way."""
    chance = Random(seed)
    cluster.create("t", 2)
    losses = [Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.UNAVAILABLE, Fault.TIMED_OUT]

    async def work(producer: Producer) -> None:
        for round_ in range(5):
            cluster.faults = []
            before = producer.identity.producer_id
            cluster.forget_producer("writer")
            await (await producer.send_batch("t", chance.randrange(2), [b"%d" % round_]))
            assert producer.identity.producer_id != before
            cluster.faults = [chance.choice(losses) for _ in range(4)]
            for number in range(6):
                _ = await producer.send_batch("t", number % 2, [b"%d/%d" % (round_, number)])
            await producer.flush()

    produce(cluster, work)
    stored = cluster.values("t", 0) + cluster.values("t", 1)
    wanted = [b"%d" % round_ for round_ in range(5)]
    wanted += [b"%d/%d" % (round_, number) for round_ in range(5) for number in range(6)]
    assert sorted(stored) == sorted(wanted)


def test_after_a_lost_answer_a_forgotten_name_halts_the_partition_with_an_unknown_outcome(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    cluster.faults = [Fault.LOSE_REPLY]

    async def work(producer: Producer) -> None:
        def forget() -> Fault | None:
            if "writer" in cluster.producers and cluster.values("t"):
                cluster.forget_producer("writer")
            return None

        cluster.fault_for = forget
        (outcome,) = await send_and_settle(producer, b"stored once")
        assert isinstance(outcome, InvalidProducerIdMapping)
        assert outcome.fields["outcome"]["state"] == "unknown"
        cluster.fault_for = lambda: None
        tail = await producer.recover("t", 0)
        assert [record.value for record in tail.records] == [b"stored once"]
        assert isinstance((await send_and_settle(producer, b"next"))[0], Receipt)

    produce(cluster, work)
    assert cluster.values("t") == [b"stored once", b"next"]


def test_a_forgotten_name_that_another_instance_has_taken_is_fenced(cluster: FakeCluster) -> None:
    cluster.create("t")

    async def work(producer: Producer) -> None:
        await send_and_settle(producer, b"a")
        cluster.forget_producer("writer")
        cluster.init_producer("writer")
        (outcome,) = await send_and_settle(producer, b"zombie")
        assert isinstance(outcome, ProducerFenced)

    produce(cluster, work)
    assert cluster.values("t") == [b"a"]


def test_a_batch_that_interceptors_leave_without_headers_is_joined_with_others() -> None:
    columns = intercepted_columns([lambda topic, record: record], "t", ([b"v", b"w"], None, None, None), 7)
    assert columns == ([b"v", b"w"], [None, None], None, [7, 7])
    columns = intercepted_columns([lambda topic, record: record], "t", ([b"v"], None, [[("h", b"x")]], None), 7)
    assert columns == ([b"v"], [None], [[("h", b"x")]], [7])

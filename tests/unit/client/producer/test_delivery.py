import asyncio

import pytest

from stockade.client.loop_affinity import LoopAffinity
from stockade.client.producer.delivery import Buffer, Delivery
from stockade.client.producer.queue.batch import Batch, Receipt
from stockade.partition.errors import ProducerFenced, TopicSealed


def batch_of(count: int) -> Batch:
    return Batch.of([b"v"] * count, None, None, None, now_ms=0)


def test_each_record_has_its_own_offset_and_a_batch_its_first() -> None:
    async def run() -> None:
        batch = batch_of(2)
        first, second, whole = (
            Delivery(batch, 0, 1, LoopAffinity()),
            Delivery(batch, 1, 1, LoopAffinity()),
            Delivery(batch, 0, 2, LoopAffinity()),
        )
        waiting = asyncio.ensure_future(second)
        await asyncio.sleep(0)
        assert not second.is_done
        batch.settle(Receipt("t", 0, 40, 2, False, 0))
        assert [(await each).offset for each in (first, second, whole)] == [40, 41, 40]
        assert [(await each).count for each in (first, whole)] == [1, 2]
        assert (await waiting).offset == 41

    asyncio.run(run())


def test_a_refusal_that_certifies_a_place_certifies_each_part_s_own() -> None:
    batch = batch_of(5)
    deliveries = [Delivery(batch, first, count, LoopAffinity()) for first, count in ((0, 2), (2, 3), (0, 5))]
    batch.settle(ProducerFenced(outcome={"state": "committed", "base_offset": 40, "last_offset": 44}))
    failures = [delivery.failure for delivery in deliveries]
    assert [failure.code for failure in failures if failure] == ["PRODUCER_FENCED"] * 3
    outcomes = [failure.fields["outcome"] for failure in failures if failure]
    assert [(each["state"], each["base_offset"], each["last_offset"]) for each in outcomes] == [
        ("committed", 40, 41),
        ("committed", 42, 44),
        ("committed", 40, 44),
    ]


def test_waiting_can_be_given_up_and_taken_up_again() -> None:
    async def run() -> None:
        batch = batch_of(1)
        delivery = Delivery(batch, 0, 1, LoopAffinity())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(delivery, 0.001)
        batch.settle(TopicSealed(log_end=3))
        assert isinstance(delivery.failure, TopicSealed)
        with pytest.raises(TopicSealed):
            await delivery

    asyncio.run(run())


@pytest.mark.parametrize("error", [ValueError("in a callback"), asyncio.CancelledError()])
def test_a_done_callback_is_called_once_also_when_added_late_or_after_one_that_raised(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Delivery) -> None:
        raise error

    batch = batch_of(2)
    delivery = Delivery(batch, 1, 1, LoopAffinity())
    heard: list[Receipt | None] = []
    delivery.add_done_callback(fails)
    delivery.add_done_callback(lambda done: heard.append(done.receipt))
    assert delivery.receipt is None
    batch.settle(Receipt("t", 0, 40, 2, False, 0))
    delivery.add_done_callback(lambda done: heard.append(done.receipt))
    assert heard == [Receipt("t", 0, 41, 1, False, 0)] * 2
    assert "a callback of a delivery failed" in caplog.text


async def take(buffer: Buffer, size: int, took: list[int]) -> None:
    await buffer.take(size)
    took.append(size)


def test_buffer_room_is_given_in_the_order_of_asking() -> None:
    async def run() -> None:
        buffer, took = Buffer(10, 60_000), list[int]()
        await buffer.take(8)
        waiting = [asyncio.ensure_future(take(buffer, size, took)) for size in (5, 1, 2)]
        await asyncio.sleep(0)
        assert took == []
        buffer.give_back(8)
        await asyncio.gather(*waiting)
        assert took == [5, 1, 2]

    asyncio.run(run())


def test_a_record_larger_than_the_buffer_is_let_in_when_it_is_empty() -> None:
    async def run() -> None:
        buffer = Buffer(10, 60_000)
        await buffer.take(11)
        waiting = asyncio.ensure_future(buffer.take(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        buffer.give_back(11)
        await waiting

    asyncio.run(run())


def test_a_cancelled_waiter_takes_no_buffer_room() -> None:
    async def run() -> None:
        buffer, took = Buffer(10, 60_000), list[int]()
        await buffer.take(10)
        gone, served = (asyncio.ensure_future(take(buffer, size, took)) for size in (10, 9))
        await asyncio.sleep(0)
        gone.cancel()
        buffer.give_back(10)
        await served
        assert took == [9]

    asyncio.run(run())


def test_a_waiter_cancelled_just_when_it_gets_room_gives_it_back() -> None:
    async def run() -> None:
        buffer, took = Buffer(10, 60_000), list[int]()
        await buffer.take(10)
        gone, served = (asyncio.ensure_future(take(buffer, 10, took)) for _ in range(2))
        await asyncio.sleep(0)
        buffer.give_back(10)
        gone.cancel()
        await asyncio.wait_for(served, 60)
        assert took == [10]

    asyncio.run(run())

"""Whole batches that wait for room in flight travel together: how they are gathered, and what each of them is told."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from stockade.client.config import ClientConfig
from stockade.client.producer.producer import Producer
from stockade.client.producer.queue.partition_queue import Wait
from stockade.partition.api.producers import ProducerPair
from stockade.partition.errors import InvalidRecord, MessageTooLarge, StockadeError, UnknownProducerId

from ..fake_cluster import FakeCluster, Fault
from .queue.driver import NOT_LEADER, UNKNOWN, Driver
from .test_producer import LOSSES, produce

JOINING = ClientConfig(linger_ms=20, inflight_batches_max=1, retry_backoff_ms=50, batch_records_max=6)


def test_batches_that_wait_for_room_in_flight_are_joined_into_one() -> None:
    driver = Driver(JOINING)
    driver.add_batch("a", "a2")
    driver.pump()
    assert [driver.add_batch("b", "b2"), driver.add_batch("c"), driver.add_batch("d", "d2")] == [0, 2, 3]
    driver.store("a")
    assert driver.wire == ["a", "b"]
    batch = driver.batches["b"]
    assert (batch.first_seq, batch.count, batch.message) == (2, 5, b"bb2cdd2")
    assert driver.batches["c"] is driver.batches["d"] is batch


def test_a_batch_that_was_sent_takes_no_more_records_after_any_outcome() -> None:
    driver = Driver(JOINING)
    driver.add_batch("a")
    driver.pump()
    driver.add_batch("b")
    driver.refuse("a", UNKNOWN)
    driver.wait(1000)
    driver.refuse("a", NOT_LEADER)
    driver.add_batch("c")
    driver.wait(1000)
    assert driver.wire == ["a", "a", "a"]
    driver.store("a")
    assert [(driver.batches[name].first_seq, driver.batches[name].count) for name in "abc"] == [(0, 1), (1, 2), (1, 2)]


def test_batches_that_begin_again_under_a_new_epoch_have_the_bounds_that_they_had() -> None:
    driver = Driver(JOINING)
    driver.add_batch("a", "a2")
    driver.pump()
    driver.refuse("a", UnknownProducerId(log_start=0))
    driver.queue.renew(ProducerPair(1, 1, None))
    driver.add_batch("b")
    driver.pump()
    assert (driver.batches["a"].count, driver.batches["b"].count) == (2, 1)


def test_a_send_batch_does_not_linger_and_takes_lingering_records_along() -> None:
    driver = Driver(JOINING)
    driver.add("a")
    assert driver.pump() == Wait(0.02)
    assert driver.add_batch("b", "b2") == 1
    driver.pump()
    assert driver.wire == ["a"]
    driver.add_batch("c")
    driver.add("d")
    driver.store("a")
    assert driver.batches["d"].message == b"cd"


def test_joined_batches_stay_within_batch_bytes_max_and_encoded_ones_are_sent_alone() -> None:
    driver = Driver(replace(JOINING, batch_bytes_max=1024))
    driver.add_batch("a")
    driver.pump()
    calls = [["b"] * 4, ["c"] * 3, ["d" * 1000], ["e"], ["f"] * 6, ["g"], ["h"]]
    for call in calls:
        driver.add_batch(*call, message=b"h" if call == ["h"] else None)
    driver.add_batch("i")
    assert [batch.count for batch in driver.queue.unsettled[1:]] == [4, 3, 1, 1, 6, 1, 1, 1]


def test_with_on_error_continue_no_batches_are_joined() -> None:
    driver = Driver(replace(JOINING, on_error="continue"))
    for name in "abc":
        driver.add_batch(name)
    assert [batch.count for batch in driver.queue.unsettled] == [1, 1, 1]


@pytest.mark.parametrize("fault", [None, *LOSSES])
def test_joined_batches_are_stored_once_and_each_delivery_has_its_own_offsets(
    cluster: FakeCluster, fault: Fault | None
) -> None:
    cluster.create("t")
    cluster.faults = [Fault.HOLD, fault]
    values = [[b"%d" % (10 * call + place) for place in range(call + 1)] for call in range(5)]

    async def work(producer: Producer) -> None:
        deliveries = [await producer.send_batch("t", 0, each) for each in values]
        await cluster.seen("POST", 2)  # the producer's start, and the first
        deliveries.append(await producer.send("t", b"behind", partition=0))
        cluster.release_held()
        receipts = [await delivery for delivery in deliveries]
        assert [(receipt.offset, receipt.count) for receipt in receipts] == [
            (0, 1),
            (1, 2),
            (3, 3),
            (6, 4),
            (10, 5),
            (15, 1),
        ]
        assert [receipt.last_offset for receipt in receipts] == [0, 2, 5, 9, 14, 15]

    produce(cluster, work, inflight_batches_max=1)
    assert cluster.values("t") == [*chain(*values), b"behind"]
    assert len(cluster.machine("t", 0).log.read(0, 1 << 20).messages()) == 2


def test_a_bad_batch_is_refused_before_it_could_be_joined_with_others(cluster: FakeCluster) -> None:
    cluster.create("t", batch_bytes_max=4096)
    cluster.faults = [Fault.HOLD]

    async def work(producer: Producer) -> None:
        deliveries = [await producer.send_batch("t", 0, [b"first"]), await producer.send_batch("t", 0, [b"good"])]
        refused: list[tuple[dict[str, Any], type[StockadeError]]] = [
            ({"values": ["text"]}, InvalidRecord),
            ({"values": [b"v"], "keys": [1]}, InvalidRecord),
            ({"values": [b"v"], "keys": ["k"]}, InvalidRecord),
            ({"values": [b"v"], "timestamps_ms": [-1]}, InvalidRecord),
            ({"values": [b"v"], "timestamps_ms": [2**63]}, InvalidRecord),
            ({"values": [b"v"], "headers": [[("h", None)]]}, InvalidRecord),
            ({"values": [b"x" * 4096]}, MessageTooLarge),
        ]
        for columns, refusal in refused:
            with pytest.raises(refusal):
                _ = await producer.send_batch("t", 0, **columns)
        deliveries.append(await producer.send_batch("t", 0, [b"too"]))
        cluster.release_held()
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]

    produce(cluster, work, inflight_batches_max=1)
    assert cluster.values("t") == [b"first", b"good", b"too"]

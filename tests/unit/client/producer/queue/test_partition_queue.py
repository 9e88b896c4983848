"""The rules of a partition's queue: batching, numbering, order under retry."""

from dataclasses import replace

import pytest

from stockade.client.config import ClientConfig, OnError
from stockade.client.producer.queue.batch import Batch, Record
from stockade.client.producer.queue.partition_queue import PartitionQueue, Send, Wait
from stockade.partition.commands import Token
from stockade.partition.errors import (
    InvalidRecord,
    LeaderNotAvailable,
    MessageTooLarge,
    ProducerBusy,
    ProducerFenced,
    RequestTimedOut,
    StockadeError,
)

from .driver import COMMITTED, CONFIG, GAP, NOT_LEADER, UNKNOWN, Driver, describe, encode, in_flight


def test_at_most_five_batches_are_under_way() -> None:
    driver = in_flight(*"abcdefg")
    assert driver.wire == [*"abcde"]
    driver.store("a")
    assert driver.wire == [*"abcdef"]


def test_sequence_numbers_count_records_and_wrap_at_two_to_the_31() -> None:
    config = ClientConfig(linger_ms=0, batch_records_max=3)
    driver = Driver(config)
    driver.queue._next_seq = 2**31 - 4
    driver.add("a", "a2", "a3", "b", "b2", "b3", "c")
    driver.queue.seal()
    driver.pump()
    firsts = [driver.batches[name].first_seq for name in ("a", "b", "c")]
    assert firsts == [2**31 - 4, 2**31 - 1, 2]


def test_a_batch_waits_for_its_linger_unless_it_is_full() -> None:
    driver = Driver(ClientConfig(linger_ms=20, batch_records_max=2))
    driver.add("a")
    assert driver.pump() == Wait(0.02)
    driver.add("a2")
    driver.pump()
    assert driver.wire == ["a"]
    driver.add("b")
    driver.wait(20)
    assert driver.wire == ["a", "b"]


def test_a_full_batch_is_closed_by_bytes_and_a_longer_record_travels_alone() -> None:
    driver = Driver(ClientConfig(linger_ms=0, batch_bytes_max=1024))
    for size in (500, 400, 200, 5000, 10):
        record = Record(None, b"x" * size, 0)
        driver.queue.add(record, record.size, 0.0)
    assert [batch.count for batch in driver.queue.unsettled] == [2, 1, 1, 1]


def test_the_next_batch_leaves_only_when_the_one_before_it_is_written() -> None:
    driver = Driver()
    driver.add("a", "b")
    driver.pump(written=False)
    assert driver.wire == ["a"]
    driver.queue.written(driver.batches["a"])
    driver.pump()
    assert driver.wire == ["a", "b"]


def test_94_a_refused_pipeline_is_resent_one_at_a_time_in_order_and_the_next_batch_is_held_back() -> None:
    driver = in_flight(*"abc")
    driver.refuse("a", NOT_LEADER)
    driver.refuse("b", GAP)
    driver.refuse("c", GAP)
    driver.add("d")
    driver.wait(49)
    assert driver.wire == [*"abc"]
    driver.wait(1)
    assert driver.wire == [*"abc", "a"]
    driver.store("a", 0)
    assert driver.wire == [*"abc", "a", "b"]
    driver.store("b", 1)
    driver.store("c", 2)
    assert driver.wire == [*"abc", *"abc", "d"]
    driver.store("d", 3)
    assert driver.outcomes == {"a": "0", "b": "1", "c": "2", "d": "3"}


def test_95_a_final_refusal_fails_all_later_batches_and_resends_none() -> None:
    driver = in_flight("a", "b")
    driver.add("c")
    driver.refuse("a", MessageTooLarge(limit=1, unit="bytes"))
    driver.refuse("b", GAP)
    driver.wait(1000)
    assert driver.wire == ["a", "b"]
    assert driver.outcomes == dict.fromkeys("abc", "MESSAGE_TOO_LARGE absent")


def test_96_a_batch_that_expired_after_it_was_sent_has_an_unknown_outcome_and_halts_the_partition() -> None:
    config = ClientConfig(linger_ms=0, batch_records_max=1, request_timeout_ms=100, delivery_timeout_ms=1000)
    driver = in_flight("a", config=config)
    driver.wait(999)
    assert driver.outcomes == {}
    driver.wait(1)
    assert driver.outcomes == {"a": "REQUEST_TIMED_OUT unknown"}
    with pytest.raises(RequestTimedOut):
        driver.add("b")


def test_96_a_later_answer_proves_that_an_expired_batch_was_stored_at_an_unknown_place() -> None:
    config = ClientConfig(linger_ms=0, batch_records_max=1, request_timeout_ms=100, delivery_timeout_ms=1000)
    driver = in_flight("a", "b", config=config)
    driver.store("b", 1)
    assert driver.outcomes == {}
    driver.wait(1000)
    assert driver.outcomes == {"a": "None", "b": "1"}
    driver.add("c")
    driver.pump()
    assert driver.wire == ["a", "b", "c"]


def test_97_answers_out_of_order_settle_in_order() -> None:
    driver = in_flight("a", "b", "c")
    driver.store("c", 2, duplicate=True)
    driver.store("b", 1)
    assert driver.outcomes == {}
    driver.store("a", 0)
    assert list(driver.outcomes.items()) == [("a", "0"), ("b", "1"), ("c", "2")]


def test_97_a_second_answer_for_a_batch_changes_nothing() -> None:
    driver = in_flight("a")
    driver.store("a", 0)
    driver.store("a", 5, duplicate=True)
    driver.refuse("a", GAP)
    assert driver.outcomes == {"a": "0"}


def test_97_a_second_answer_for_a_batch_gives_none_of_its_numbers_to_the_next() -> None:
    """A batch with a message id gives its numbers back when it turns out to be a duplicate of another one."""
    driver = Driver()
    driver.add_batch("a", message_id="m")
    driver.pump()
    driver.store("a", 0)
    driver.store("a", 0, duplicate=True)
    driver.add("b")
    driver.pump()
    assert (driver.batches["a"].first_seq, driver.batches["b"].first_seq) == (0, 1)


def test_answered_batches_keep_their_place_in_the_window_until_those_before_them_are_settled() -> None:
    driver = in_flight(*"abcdef")
    for name in "bcde":
        driver.store(name, 1)
    assert driver.wire == [*"abcde"]
    driver.store("a", 0)
    assert driver.wire == [*"abcdef"]


@pytest.mark.parametrize("window", [1, 5])
def test_100_a_failed_batch_is_sent_again_before_a_queued_one(window: int) -> None:
    driver = Driver(ClientConfig(linger_ms=0, batch_records_max=1, retry_backoff_ms=50, inflight_batches_max=window))
    driver.add("a")
    driver.pump()
    driver.refuse("a", NOT_LEADER)
    driver.add("b")
    assert driver.pump() == Wait(0.05)
    driver.wait(50)
    driver.store("a", 0)
    assert driver.wire == ["a", "a", "b"]


@pytest.mark.parametrize("failure", [LeaderNotAvailable(), UNKNOWN], ids=["before the write", "after the write"])
def test_101_a_retried_batch_keeps_its_first_sequence_its_bytes_and_its_token(failure: StockadeError) -> None:
    driver = Driver(ClientConfig(linger_ms=0, retry_backoff_ms=50))
    driver.queue.token = Token("g", 1, "s")
    driver.add("a", "b")
    driver.pump()
    batch = driver.batches["a"]
    sent = batch.first_seq, batch.message, batch.count, batch.token
    driver.refuse("a", failure)
    driver.queue.token = Token("g", 2, "s")
    driver.add("c")
    driver.wait(200)
    assert driver.queue.window == [batch]
    assert (batch.first_seq, batch.message, batch.count, batch.token) == sent
    assert batch.attempts == 2


def test_102_a_batch_refused_for_a_gap_gives_one_error_to_all_its_records() -> None:
    driver = Driver(ClientConfig(linger_ms=0, batch_records_max=10))
    driver.add(*"abcdefghij")
    driver.pump()
    driver.refuse("a", GAP)
    assert [(batch.count, describe(outcome)) for batch, outcome in driver.settled] == [
        (10, "OUT_OF_ORDER_SEQUENCE_NUMBER absent")
    ]


def test_out_of_order_for_the_oldest_batch_is_a_real_gap() -> None:
    driver = in_flight("a")
    driver.refuse("a", GAP)
    assert driver.outcomes == {"a": "OUT_OF_ORDER_SEQUENCE_NUMBER absent"}


def test_out_of_order_for_a_batch_that_overtook_an_older_one_is_no_gap_even_if_the_older_answer_came_first() -> None:
    driver = in_flight("a", "b")
    driver.store("a", 0)
    driver.refuse("b", GAP)
    assert driver.wire == ["a", "b", "b"]
    driver.store("b", 1)
    assert driver.outcomes == {"a": "0", "b": "1"}


def test_105_a_batch_that_waited_behind_a_retry_gets_its_sequence_number_once_when_it_is_sent() -> None:
    driver = Driver(ClientConfig(linger_ms=0, retry_backoff_ms=50, batch_records_max=1, inflight_batches_max=2))
    driver.add("a")
    driver.pump()
    driver.refuse("a", NOT_LEADER)
    driver.add("b", "c")
    driver.pump()
    assert [driver.batches[name].first_seq for name in "abc"] == [0, -1, -1]
    driver.wait(50)
    driver.store("a")
    assert [driver.batches[name].first_seq for name in "abc"] == [0, 1, 2]
    driver.refuse("b", NOT_LEADER)
    driver.refuse("c", GAP)
    driver.wait(100)
    driver.store("b")
    driver.store("c")
    assert driver.wire == [*"aabcbc"]
    assert [driver.batches[name].first_seq for name in "abc"] == [0, 1, 2]


def test_106_a_retrying_partition_does_not_delay_another() -> None:
    troubled, other = in_flight("a"), in_flight("x")
    troubled.refuse("a", NOT_LEADER)
    other.store("x", 0)
    other.add("y")
    other.pump()
    assert other.wire == ["x", "y"]
    assert troubled.wire == ["a"]


def test_110_a_batch_that_cannot_be_encoded_fails_alone_and_takes_no_sequence_number() -> None:
    def picky(batch: Batch) -> None:
        if batch.values == [b"bad"]:
            raise InvalidRecord("bad")
        encode(batch)

    driver = Driver()
    driver.queue = PartitionQueue(CONFIG, picky, CONFIG.batch_bytes_max)
    driver.add("good", "bad", "better")
    driver.pump()
    assert driver.wire == ["good", "better"]
    assert driver.outcomes == {"bad": "INVALID_RECORD absent"}
    assert driver.batches["better"].first_seq == 1


@pytest.mark.parametrize("on_error", ["halt_partition", "continue"])
def test_114_a_batch_that_its_topic_no_longer_takes_halts_a_partition_that_must_have_no_gap(on_error: OnError) -> None:
    """The topic's ``max_batch_bytes`` was lowered while the batch waited: those behind it were stored without it."""

    def lower_limit(batch: Batch) -> None:
        if batch.values == [b"long"]:
            raise MessageTooLarge(limit=1, unit="bytes")
        encode(batch)

    driver = Driver()
    driver.queue = PartitionQueue(replace(CONFIG, on_error=on_error), lower_limit, CONFIG.batch_bytes_max)
    driver.add("before", "long", "behind")
    driver.pump()
    driver.store("before", 0)
    failed = {"long": "MESSAGE_TOO_LARGE absent", "behind": "MESSAGE_TOO_LARGE absent"}
    if on_error == "halt_partition":
        assert driver.wire == ["before"]
        assert driver.outcomes == {"before": "0", **failed}
        with pytest.raises(MessageTooLarge):
            driver.add("later")
    else:
        assert driver.wire == ["before", "behind"]
        assert driver.outcomes == {"before": "0", "long": failed["long"]}


def test_114_after_an_error_queued_batches_fail_and_no_record_is_taken() -> None:
    driver = in_flight(*"abcdefg")
    driver.refuse("a", MessageTooLarge(limit=1, unit="bytes"))
    assert driver.outcomes == {"a": "MESSAGE_TOO_LARGE absent"}
    for name in "bcde":
        driver.refuse(name, GAP)
    assert list(driver.outcomes) == [*"abcdefg"]
    assert driver.wire == [*"abcde"]
    with pytest.raises(MessageTooLarge):
        driver.add("h")


def test_a_fenced_writer_learns_the_own_outcome_of_each_batch() -> None:
    driver = in_flight(*"abcde")
    driver.add("f")
    driver.refuse("b", ProducerFenced(current_epoch=2, reason="superseded", outcome={"state": "absent"}))
    driver.refuse("a", ProducerFenced(current_epoch=2, reason="superseded", outcome=COMMITTED))
    driver.refuse("c", UNKNOWN)
    driver.refuse("d", GAP)
    assert list(driver.outcomes) == [*"abcd"]
    driver.store("e", 9)
    fenced = "PRODUCER_FENCED "
    assert driver.outcomes == {
        "a": fenced + "committed",
        "b": fenced + "absent",
        "c": fenced + "unknown",
        "d": fenced + "absent",
        "e": "9",
        "f": fenced + "absent",
    }


def test_a_final_refusal_waits_until_the_batches_before_it_are_settled() -> None:
    driver = in_flight("a", "b")
    driver.refuse("b", MessageTooLarge(limit=1, unit="bytes"))
    assert driver.outcomes == {}
    driver.add("c")
    driver.refuse("a", NOT_LEADER)
    driver.wait(50)
    assert driver.wire == ["a", "b", "a"]
    driver.store("a", 0)
    assert driver.outcomes == {"a": "0", "b": "MESSAGE_TOO_LARGE absent", "c": "MESSAGE_TOO_LARGE absent"}


def test_a_halted_queue_sends_nothing_and_still_takes_the_answers_in_flight() -> None:
    driver = in_flight("a", "b")
    driver.settle(driver.queue.halt(ProducerFenced(current_epoch=3, reason="evicted")))
    driver.store("a", 0)
    driver.refuse("b", UNKNOWN)
    assert driver.outcomes == {"a": "0", "b": "PRODUCER_FENCED unknown"}
    assert driver.wire == ["a", "b"]


def test_pauses_double_up_to_their_maximum_and_obey_the_server() -> None:
    driver = in_flight("a")
    pauses = []
    for error in (NOT_LEADER, NOT_LEADER, NOT_LEADER, NOT_LEADER, LeaderNotAvailable(retry_after_ms=700)):
        driver.refuse("a", error)
        until_s = driver.pump().until_s
        assert until_s is not None
        pauses.append(round((until_s - driver.now_s) * 1000))
        driver.wait(pauses[-1])
    assert pauses == [50, 100, 200, 200, 700]


def test_a_batch_that_was_only_ever_refused_expires_with_its_last_refusal() -> None:
    config = ClientConfig(linger_ms=0, batch_records_max=1, request_timeout_ms=100, delivery_timeout_ms=1000)
    driver = in_flight("a", config=config)
    driver.refuse("a", ProducerBusy(reason="exclusive_present"))
    driver.now_s = 1.0
    driver.pump()
    assert driver.outcomes == {"a": "PRODUCER_BUSY absent"}


def test_a_held_queue_gives_out_no_sequence_number() -> None:
    driver = in_flight("a")
    driver.queue.hold(on=True)
    driver.queue.hold(on=True)
    driver.queue.hold(on=False)
    driver.add("b")
    driver.pump()
    assert driver.wire == ["a"]
    driver.queue.hold(on=False)
    driver.pump()
    assert driver.wire == ["a", "b"]


def test_an_idle_queue_waits_without_a_deadline() -> None:
    driver = in_flight("a")
    driver.store("a", 0)
    assert driver.pump() == Wait(None)
    assert driver.queue.is_idle


def test_a_sent_batch_is_reported_by_its_action() -> None:
    driver = Driver()
    driver.add("a")
    assert driver.queue.poll(0.0) == Send(driver.batches["a"])


def test_a_batch_that_is_known_to_be_stored_as_it_expires_holds_up_nothing_though_it_was_never_written() -> None:
    driver = in_flight("a")
    driver.now_s = 1
    driver.add("b", "c")
    driver.pump()
    driver.refuse("a", UNKNOWN)
    driver.store("b", 8)
    driver.refuse("c", GAP)
    driver.now_s = CONFIG.delivery_timeout_ms / 1000
    driver.queue._attempt(driver.batches["a"])
    driver.pump()
    assert driver.outcomes == {"a": "None", "b": "8"}
    assert driver.wire == ["a", "b", "c", "c"]

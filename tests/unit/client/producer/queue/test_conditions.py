"""Batches with ``if_log_end`` or ``message_id``: how they go together with sequence numbers and repetition."""

import pytest

from stockade.client.api.conditions import Conditions
from stockade.client.config import ClientConfig
from stockade.partition.api.producers import ProducerPair
from stockade.partition.errors import InvalidRequest, OffsetMismatch

from .driver import NOT_LEADER, UNKNOWN, Driver

PATIENT = ClientConfig(linger_ms=0, retry_backoff_ms=50, batch_records_max=1, on_error="continue")


def past(log_end: int) -> OffsetMismatch:
    return OffsetMismatch(log_end=log_end)


def sent(**condition: int | str) -> Driver:
    """One conditional batch ``c`` in flight, with two plain ones behind it."""
    driver = Driver()
    driver.add_batch("c", **condition)  # type: ignore[arg-type]
    driver.add("x", "y")
    driver.pump()
    return driver


def numbers(driver: Driver) -> dict[str, int]:
    return {name: batch.first_seq for name, batch in driver.batches.items()}


@pytest.mark.parametrize("condition", [{"if_log_end": 5}, {"message_id": "m"}])
def test_a_conditional_batch_has_the_window_for_itself(condition: dict[str, int | str]) -> None:
    driver = Driver()
    driver.add("a", "b")
    driver.add_batch("c", **condition)  # type: ignore[arg-type]
    driver.add("d", "e")
    driver.pump()
    assert driver.wire == ["a", "b"]
    driver.store("b")
    assert driver.wire == ["a", "b"]
    driver.store("a")
    assert driver.wire == ["a", "b", "c"]
    driver.store("c")
    assert driver.wire == ["a", "b", "c", "d", "e"]


def test_calls_with_a_condition_are_not_joined_with_others() -> None:
    driver = Driver()
    driver.add_batch("a")
    assert [driver.add_batch(name, if_log_end=5) for name in "cd"] == [0, 0]
    driver.add_batch("b")
    assert len({id(batch) for batch in driver.batches.values()}) == 4


@pytest.mark.parametrize("log_end", [4, 6])
def test_a_refused_condition_fails_alone_and_the_next_batch_gets_its_number(log_end: int) -> None:
    driver = sent(if_log_end=5)
    driver.refuse("c", past(log_end))
    assert driver.outcomes == {"c": "OFFSET_MISMATCH absent"}
    assert driver.wire == ["c", "x", "y"]
    assert numbers(driver) == {"c": 0, "x": 0, "y": 1}
    assert driver.queue.error is None
    assert not driver.queue.needs_epoch


def test_a_stored_batch_is_a_duplicate_and_no_failure_when_its_condition_is_repeated() -> None:
    driver = sent(if_log_end=5)
    driver.refuse("c", UNKNOWN)
    driver.wait(50)
    driver.store("c", 5, duplicate=True)
    assert driver.outcomes == {"c": "5"}
    assert numbers(driver) == {"c": 0, "x": 1, "y": 2}


def test_a_repeated_condition_that_the_log_has_passed_was_never_stored_and_never_will_be() -> None:
    driver = sent(if_log_end=5)
    driver.refuse("c", UNKNOWN)
    driver.wait(50)
    driver.refuse("c", past(6))
    assert driver.outcomes == {"c": "OFFSET_MISMATCH absent"}
    assert numbers(driver) == {"c": 0, "x": 0, "y": 1}


def test_a_condition_ahead_of_the_log_may_still_be_met_by_an_earlier_attempt_so_the_partition_halts() -> None:
    driver = sent(if_log_end=5)
    driver.refuse("c", UNKNOWN)
    driver.wait(50)
    driver.refuse("c", past(4))
    assert driver.outcomes["c"] == "OFFSET_MISMATCH unknown"
    assert driver.queue.error is not None
    assert driver.wire == ["c", "c"]


def test_and_with_continue_its_numbers_are_left_behind_with_the_epoch() -> None:
    driver = Driver(PATIENT)
    driver.add_batch("c", if_log_end=5)
    driver.add("x")
    driver.pump()
    driver.refuse("c", UNKNOWN)
    driver.wait(50)
    driver.refuse("c", past(4))
    assert driver.queue.needs_epoch
    driver.queue.renew(ProducerPair(1, 1, "writer"))
    driver.pump()
    assert driver.wire == ["c", "c", "x"]
    assert numbers(driver)["x"] == 0


def test_a_refused_attempt_without_effect_leaves_the_condition_open() -> None:
    driver = sent(if_log_end=5)
    driver.refuse("c", NOT_LEADER)
    driver.wait(50)
    driver.refuse("c", past(4))
    assert driver.outcomes == {"c": "OFFSET_MISMATCH absent"}
    assert driver.wire == ["c", "c", "x", "y"]


def test_a_known_message_id_uses_up_no_numbers() -> None:
    driver = sent(message_id="m")
    driver.store("c", 3, duplicate=True)
    assert driver.outcomes == {"c": "3"}
    assert numbers(driver) == {"c": 0, "x": 0, "y": 1}


def test_a_message_id_known_after_an_unknown_outcome_leaves_open_whose_batch_it_was_so_a_new_epoch_begins() -> None:
    driver = sent(message_id="m")
    driver.refuse("c", UNKNOWN)
    driver.wait(50)
    driver.store("c", 3, duplicate=True)
    assert driver.outcomes == {"c": "3"}
    assert driver.queue.needs_epoch
    assert driver.wire == ["c", "c"]
    driver.queue.renew(ProducerPair(1, 1, "writer"))
    driver.pump()
    assert driver.wire == ["c", "c", "x", "y"]
    assert numbers(driver) == {"c": 0, "x": 0, "y": 1}


def test_a_stored_message_id_uses_up_its_numbers() -> None:
    driver = sent(message_id="m")
    driver.store("c", 3)
    assert numbers(driver) == {"c": 0, "x": 1, "y": 2}


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a" * 129])
def test_a_message_id_that_a_header_would_change_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="message_id"):
        Conditions(message_id=name).check()


@pytest.mark.parametrize("offset", [-1, "5"])
def test_a_condition_is_an_offset(offset: object) -> None:
    with pytest.raises(InvalidRequest, match="if_log_end"):
        Conditions(if_log_end=offset).check()  # type: ignore[arg-type]
    Conditions(if_log_end=0, message_id="a" * 128).check()

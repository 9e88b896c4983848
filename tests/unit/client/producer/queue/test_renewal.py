"""A partition's queue under a new epoch: what it heals, which batches are sent again, which get new numbers."""

import pytest

from stockade.client.config import ClientConfig
from stockade.client.producer.queue.batch import Receipt
from stockade.partition.api.producers import ProducerPair
from stockade.partition.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    MessageTooLarge,
    ProducerFenced,
    StockadeError,
    UnknownProducerId,
)

from .driver import COMMITTED, CONFIG, GAP, NOT_LEADER, UNKNOWN, Driver, in_flight

CONTINUE = ClientConfig(
    linger_ms=0,
    batch_records_max=1,
    request_timeout_ms=100,
    delivery_timeout_ms=1000,
    retry_backoff_ms=10,
    on_error="continue",
)
ABSENT = {"state": "absent", "base_offset": None, "last_offset": None}
NOWHERE = {"state": "unknown", "base_offset": None, "last_offset": None}
TOO_LARGE = MessageTooLarge(limit=1, unit="bytes")
FORGOTTEN = UnknownProducerId(log_start=0, log_end=9)


def pair(epoch: int, pid: int = 1001) -> ProducerPair:
    return ProducerPair(producer_id=pid, producer_epoch=epoch, name="writer")


def renew(driver: Driver, epoch: int = 1) -> None:
    assert driver.queue.is_quiet
    driver.queue.renew(pair(epoch))
    driver.pump()


def stamp(driver: Driver, name: str) -> tuple[int, int]:
    batch = driver.batches[name]
    assert batch.identity is not None
    return batch.identity.producer_epoch, batch.first_seq


def started(*names: str, config: ClientConfig = CONTINUE) -> Driver:
    driver = Driver(config)
    driver.queue.identity = pair(0)
    driver.add(*names)
    driver.pump()
    return driver


def test_95_batches_behind_a_refused_one_are_renumbered_under_a_new_epoch_and_stored_once() -> None:
    driver = started("a", "b", "c")
    driver.refuse("a", TOO_LARGE)
    assert driver.queue.needs_epoch
    assert not driver.queue.is_quiet
    driver.refuse("b", GAP)
    driver.refuse("c", GAP)
    assert driver.wire == ["a", "b", "c"]
    renew(driver)
    assert driver.wire == ["a", "b", "c", "b", "c"]
    assert [stamp(driver, name) for name in "bc"] == [(1, 0), (1, 1)]
    driver.store("b", 5)
    driver.store("c", 6)
    assert driver.outcomes == {"a": "MESSAGE_TOO_LARGE absent", "b": "5", "c": "6"}


def test_95_nothing_behind_a_refused_batch_leaves_before_the_new_epoch() -> None:
    driver = started("a")
    driver.refuse("a", TOO_LARGE)
    driver.add("b")
    driver.wait(500)
    assert driver.wire == ["a"]
    renew(driver)
    assert stamp(driver, "b") == (1, 0)


def test_96_after_an_expiry_the_next_batch_is_numbered_under_one_new_epoch() -> None:
    driver = started("a")
    driver.refuse("a", UNKNOWN)
    driver.now_s = 0.9
    driver.add("b")
    driver.now_s = 1.0
    driver.pump()
    assert driver.outcomes == {"a": "REQUEST_TIMED_OUT unknown"}
    assert driver.queue.needs_epoch
    renew(driver)
    assert driver.wire[-1] == "b"
    assert stamp(driver, "b") == (1, 0)
    driver.store("b", 1)
    assert not driver.queue.needs_epoch


@pytest.mark.parametrize("config", [CONTINUE, CONFIG])
def test_98_a_producer_forgotten_without_a_log_start_is_plainly_retried(config: ClientConfig) -> None:
    driver = started("a", config=config)
    driver.refuse("a", UnknownProducerId(log_start=None, log_end=None))
    assert not driver.queue.needs_epoch
    driver.wait(60)
    assert driver.wire == ["a", "a"]
    assert stamp(driver, "a") == (0, 0)


@pytest.mark.parametrize("config", [CONTINUE, CONFIG])
@pytest.mark.parametrize("forgotten", [FORGOTTEN, InvalidProducerIdMapping()], ids=lambda error: error.code)
def test_98_a_forgotten_producer_continues_under_a_new_epoch_without_a_failure(
    config: ClientConfig, forgotten: StockadeError
) -> None:
    driver = started("a", "b", config=config)
    driver.refuse("a", forgotten)
    driver.refuse("b", GAP)
    renew(driver)
    assert [stamp(driver, name) for name in "ab"] == [(1, 0), (1, 1)]
    driver.store("a", 0)
    driver.store("b", 1)
    assert driver.outcomes == {"a": "0", "b": "1"}


def test_99_an_idle_queue_restarts_at_sequence_0_too() -> None:
    driver = started("a")
    driver.store("a", 0)
    renew(driver, epoch=4)
    driver.add("b")
    driver.pump()
    assert stamp(driver, "b") == (4, 0)


def test_103_each_batch_whose_retries_are_exhausted_costs_one_epoch_and_the_next_starts_at_zero() -> None:
    driver = started("a")
    for epoch, (failed, following) in enumerate([("a", "b"), ("b", "c"), ("c", "d")], start=1):
        driver.refuse(failed, NOT_LEADER)
        driver.wait(CONTINUE.delivery_timeout_ms)
        assert driver.outcomes[failed] == "NOT_LEADER_OR_FOLLOWER absent"
        assert driver.queue.needs_epoch
        renew(driver, epoch)
        assert not driver.queue.needs_epoch
        driver.add(following)
        driver.pump()
        assert stamp(driver, following) == (epoch, 0)


def test_103_batches_that_fail_before_the_epoch_is_renewed_share_one() -> None:
    driver = started("a", "b", "c")
    driver.refuse("b", TOO_LARGE)
    driver.refuse("a", TOO_LARGE)
    driver.refuse("c", GAP)
    assert list(driver.outcomes) == ["a", "b"]
    renew(driver)
    assert stamp(driver, "c") == (1, 0)
    assert not driver.queue.needs_epoch


def test_104_an_exhausted_id_is_replaced_and_numbers_start_at_zero() -> None:
    driver = started("a")
    driver.refuse("a", InvalidProducerEpoch(current_epoch=32767, outcome=ABSENT))
    driver.queue.renew(pair(0, pid=1003))
    driver.pump()
    identity = driver.batches["a"].identity
    assert identity is not None
    assert (identity.producer_id, stamp(driver, "a")) == (1003, (0, 0))


def test_121_a_batch_of_unknown_outcome_is_resent_unchanged_before_it_is_renumbered() -> None:
    driver = started("a", "b")
    driver.refuse("a", UNKNOWN)
    driver.refuse("b", GAP)
    driver.wait(20)
    driver.refuse("a", FORGOTTEN)
    renew(driver)
    driver.wait(50)
    assert driver.wire == ["a", "b", "a", "a"]
    assert stamp(driver, "a") == (0, 0)
    driver.refuse("a", InvalidProducerEpoch(current_epoch=1, outcome=ABSENT))
    assert driver.wire == ["a", "b", "a", "a", "a", "b"]
    assert [stamp(driver, name) for name in "ab"] == [(1, 0), (1, 1)]


@pytest.mark.parametrize("config", [CONTINUE, CONFIG])
def test_under_a_fresh_producer_id_a_batch_of_unknown_outcome_is_never_renumbered(config: ClientConfig) -> None:
    """The client stood still for days after the lost answer: nothing remembers the first attempt."""
    driver = started("a", "b", config=config)
    driver.refuse("a", UNKNOWN)
    driver.refuse("b", InvalidProducerIdMapping())
    driver.wait(50)
    driver.queue.renew(pair(0, pid=1003))
    driver.pump()
    driver.refuse("a", InvalidProducerIdMapping())
    assert driver.outcomes["a"] == "INVALID_PRODUCER_ID_MAPPING unknown"
    assert stamp(driver, "a") == (0, 0)
    assert driver.batches["a"].identity == pair(0)
    if config is CONTINUE:
        assert driver.wire[-1] == "b"
        assert driver.batches["b"].identity == pair(0, pid=1003)
    else:
        assert driver.outcomes["b"] == "INVALID_PRODUCER_ID_MAPPING absent"
        assert driver.wire.count("b") == 1


def test_121_a_batch_certified_as_committed_is_not_resent() -> None:
    driver = started("a", "b")
    driver.refuse("a", UNKNOWN)
    driver.refuse("b", GAP)
    driver.wait(20)
    refusal = InvalidProducerEpoch(current_epoch=1, outcome=COMMITTED)
    batch = driver.batches["a"]
    receipt = Receipt("t", 0, 7, 1, True, None)
    driver.settle(driver.queue.refused(batch, refusal, driver.now_s, receipt))
    assert driver.outcomes == {"a": "7"}
    renew(driver)
    assert driver.wire == ["a", "b", "a", "b"]
    assert stamp(driver, "b") == (1, 0)


def test_a_batch_whose_outcome_stays_unknown_fails_alone() -> None:
    driver = started("a", "b")
    driver.refuse("a", UNKNOWN)
    driver.refuse("b", GAP)
    driver.wait(20)
    driver.refuse("a", FORGOTTEN)
    renew(driver)
    driver.wait(50)
    driver.refuse("a", InvalidProducerEpoch(current_epoch=1, outcome=NOWHERE))
    assert driver.outcomes == {"a": "INVALID_PRODUCER_EPOCH unknown"}
    assert stamp(driver, "b") == (1, 0)


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "expired"])
def test_after_a_resent_batch_is_stored_or_expires_later_ones_are_sent_under_the_new_epoch(is_stored: bool) -> None:
    driver = started("a")
    driver.refuse("a", UNKNOWN)
    driver.wait(20)
    driver.refuse("a", FORGOTTEN)
    renew(driver)
    driver.wait(50)
    assert driver.wire == ["a"] * 3
    driver.now_s = 0.9
    driver.add("b")
    if is_stored:
        driver.store("a", 7, duplicate=True)
    else:
        driver.wait(100)
    assert driver.outcomes == {"a": "7" if is_stored else "REQUEST_TIMED_OUT unknown"}
    assert driver.wire == ["a", "a", "a", "b"]
    assert stamp(driver, "b") == (1, 0)


def test_121_batches_behind_a_duplicate_are_renumbered_without_being_resent() -> None:
    driver = started("a", "b")
    driver.refuse("a", UNKNOWN)
    driver.refuse("b", GAP)
    driver.wait(20)
    driver.refuse("a", FORGOTTEN)
    renew(driver)
    driver.wait(50)
    driver.store("a", 7, duplicate=True)
    assert driver.wire == ["a", "b", "a", "a", "b"]
    assert stamp(driver, "b") == (1, 0)


def test_a_momentary_refusal_while_asking_is_waited_out() -> None:
    driver = started("a")
    driver.refuse("a", UNKNOWN)
    driver.wait(20)
    driver.refuse("a", FORGOTTEN)
    renew(driver)
    driver.wait(50)
    driver.refuse("a", NOT_LEADER)
    driver.wait(100)
    assert driver.wire == ["a"] * 4
    assert stamp(driver, "a") == (0, 0)


def test_a_fenced_queue_halts_with_any_on_error() -> None:
    driver = started("a", "b")
    driver.refuse("a", ProducerFenced(current_epoch=2, reason="superseded", outcome=ABSENT))
    driver.refuse("b", GAP)
    assert not driver.queue.needs_epoch
    assert driver.outcomes == {"a": "PRODUCER_FENCED absent", "b": "PRODUCER_FENCED absent"}
    with pytest.raises(ProducerFenced):
        driver.add("c")


def test_a_batch_that_never_left_expires_alone() -> None:
    driver = Driver(CONTINUE)
    driver.queue.hold(on=True)
    driver.add("a")
    driver.now_s = 0.5
    driver.add("b")
    driver.now_s = 1.0
    driver.pump()
    assert driver.outcomes == {"a": "LEADER_NOT_AVAILABLE absent"}
    driver.queue.hold(on=False)
    driver.pump()
    assert driver.batches["b"].first_seq == 0


def test_a_halted_queue_takes_records_again_after_reopen() -> None:
    driver = in_flight("a")
    driver.refuse("a", TOO_LARGE)
    driver.queue.renew(pair(1))
    driver.queue.reopen()
    driver.add("b")
    driver.pump()
    assert stamp(driver, "b") == (1, 0)

"""Dropping records, sealing, and configurations that change: SEMANTICS 5.14, A3, and the order of decisions."""

import pytest

from stockade.partition.commands import BeginAt, Configure, Configured, Retain, Stamp, Token, Trim, Trimmed
from stockade.partition.config import PartitionConfig
from stockade.partition.errors import (
    FencingTokenRequired,
    InconsistentTopicId,
    OffsetMismatch,
    OffsetOutOfRange,
    PlanChanged,
    ProducerBusy,
    ProducerFenced,
    TopicSealed,
)
from stockade.partition.state.producers import Outcome

from ..driver import NAMED, TOPIC_ID, Driver, grant, repeated, state, stored


def ten() -> Driver:
    """Ten records in batches of two."""
    driver = Driver(replicas=3)
    for _ in range(5):
        driver.append(count=2)
    return driver


def test_a_trim_inside_a_batch_hides_the_records_below() -> None:
    driver = ten()
    assert driver.apply(Trim(5)) == Trimmed(5, 10)
    assert [batch.base_offset for batch in driver.machine.log.read(5, 1 << 20).batches] == [4, 6, 8]
    with pytest.raises(OffsetOutOfRange):
        driver.machine.log.read(4, 1)


def test_a_trim_of_everything_keeps_the_next_offset() -> None:
    driver = ten()
    assert driver.apply(Trim(None)) == Trimmed(10, 10)
    assert stored(driver.append()) == (10, 10)


def test_a_trim_below_the_log_start_changes_nothing() -> None:
    driver = ten()
    driver.apply(Trim(6))
    before = state(driver.machine)
    assert driver.apply(Trim(6)) == driver.apply(Trim(1)) == Trimmed(6, 10)
    assert state(driver.machine) == before


def test_trimming_beyond_the_end_is_refused() -> None:
    assert ten().apply(Trim(11)) == OffsetOutOfRange(11, 0, 10)


def test_a_trim_for_another_epoch_or_another_end_drops_nothing() -> None:
    driver = ten()
    driver.seat(1, 1)
    driver.clear(1, 1)
    before = state(driver.machine)
    epoch = driver.machine.topic_epoch
    refusal = PlanChanged(topic_epoch=epoch, log_end=10)
    assert driver.apply(Trim(2, if_epoch=epoch + 1)) == driver.apply(Trim(2, if_epoch=epoch - 1)) == refusal
    assert driver.apply(Trim(None, if_epoch=epoch, if_log_end=9)) == refusal
    assert state(driver.machine) == before
    assert driver.apply(Trim(None, if_epoch=epoch, if_log_end=10)) == Trimmed(10, 10)


def test_trimming_needs_the_token_of_a_held_slot() -> None:
    driver = ten()
    driver.seat(1, 1)
    driver.seat(2, 2, "s2")
    assert isinstance(driver.apply(Trim(2)), ProducerBusy)
    assert isinstance(driver.apply(Trim(2, token=Token(grant(1), 1, "s1"))), ProducerFenced)
    assert isinstance(driver.apply(Trim(2, token=Token(grant(2, 700), 2, "s2"))), InconsistentTopicId)
    assert isinstance(driver.apply(Trim(2, topic_id=700)), InconsistentTopicId)
    assert driver.apply(Trim(2, TOPIC_ID, Token(grant(2), 2, "s2"))) == Trimmed(2, 10)


def test_trimming_needs_a_token_where_the_topic_requires_one() -> None:
    driver = Driver(require_fence=True)
    assert driver.apply(Trim(0)) == FencingTokenRequired()


def test_duplicates_may_lie_below_the_start_of_the_log() -> None:
    driver = Driver(replicas=3)
    driver.enrol(NAMED)
    stored(driver.send(NAMED, 0, 0, 3))
    driver.apply(Trim(None))
    assert repeated(driver.send(NAMED, 0, 0, 3)) == (0, 2)


def test_retention_needs_no_token_and_stops_at_the_log_end() -> None:
    driver = ten()
    driver.seat(1, 1)
    assert driver.apply(Retain(99, 0)) == Trimmed(10, 10)
    assert driver.apply(Retain(3, 0)) == Trimmed(10, 10)


def test_a_sealed_topic_refuses_appends_with_an_outcome_certificate() -> None:
    driver = ten()
    driver.enrol(NAMED)
    stored(driver.send(NAMED, 0, 0))
    assert driver.apply(Configure(900, PartitionConfig(TOPIC_ID, sealed=True))) == Configured(900)
    assert driver.append() == TopicSealed(log_end=11)
    for sequence, outcome in ((0, Outcome("committed", 10, 10)), (1, Outcome("absent"))):
        assert driver.append(Stamp(NAMED, 0, sequence)) == TopicSealed(log_end=11, outcome=outcome.fields())
    assert driver.append(token=Token(grant(1), 9, "s")) == TopicSealed(log_end=11)
    assert isinstance(driver.append(topic_id=3), InconsistentTopicId)
    assert driver.apply(Trim(4)) == Trimmed(4, 11)


def test_sealing_is_never_undone() -> None:
    driver = Driver()
    driver.apply(Configure(900, PartitionConfig(TOPIC_ID, sealed=True)))
    driver.apply(Configure(901, PartitionConfig(TOPIC_ID, require_fence=True)))
    assert driver.append() == TopicSealed(log_end=0)
    assert driver.machine.config.require_fence


def test_an_older_configuration_that_arrives_late_is_ignored() -> None:
    driver = Driver()
    driver.apply(Configure(901, PartitionConfig(TOPIC_ID, require_fence=True)))
    assert driver.apply(Configure(900, PartitionConfig(TOPIC_ID))) == Configured(901)
    assert driver.append() == FencingTokenRequired()


def test_begin_at_moves_a_log_without_records_to_the_offset() -> None:
    driver = Driver(replicas=3)
    assert driver.apply(BeginAt(40)) == driver.apply(BeginAt(40, TOPIC_ID)) == Trimmed(40, 40)
    assert stored(driver.append(count=2)) == (40, 41)
    assert (driver.machine.log_start, driver.machine.log_end) == (40, 42)
    with pytest.raises(OffsetOutOfRange):
        driver.machine.log.read(39, 1)


def test_begin_at_is_refused_once_the_log_has_had_a_record() -> None:
    driver = ten()
    assert driver.apply(BeginAt(40)) == driver.apply(BeginAt(0)) == OffsetMismatch(log_end=10)
    driver.apply(Trim(None))
    before = state(driver.machine)
    assert driver.apply(BeginAt(40)) == driver.apply(BeginAt(0)) == OffsetMismatch(log_end=10)
    assert driver.apply(BeginAt(10)) == Trimmed(10, 10)
    assert state(driver.machine) == before


def test_begin_at_is_refused_to_a_caller_that_could_not_append() -> None:
    driver = Driver()
    assert isinstance(driver.apply(BeginAt(4, 700)), InconsistentTopicId)
    driver.seat(1, 1)
    assert isinstance(driver.apply(BeginAt(4)), ProducerBusy)
    driver.clear(1, 1)
    driver.apply(Configure(2, PartitionConfig(TOPIC_ID, require_fence=True)))
    assert driver.apply(BeginAt(4)) == FencingTokenRequired()
    driver.apply(Configure(3, PartitionConfig(TOPIC_ID, sealed=True)))
    assert isinstance(driver.apply(BeginAt(4)), TopicSealed)

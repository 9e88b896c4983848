"""Fencing and the order of the checks: cases of SEMANTICS 11 that one partition decides; the number is in the name."""

import msgspec
import pytest

from stockade.partition.commands import Stamp, Token
from stockade.partition.errors import (
    FencingTokenRequired,
    InconsistentTopicId,
    InvalidFencingToken,
    InvalidProducerEpoch,
    OffsetMismatch,
    OutOfOrderSequence,
    ProducerBusy,
    ProducerFenced,
)

from ..driver import NAMED, OTHER_ANONYMOUS, TOPIC_ID, Driver, grant, repeated, stored

FORGOTTEN = {"state": "unknown", "base_offset": None, "last_offset": None, "reason": "forgotten"}
ABSENT = {"state": "absent", "base_offset": None, "last_offset": None}


def committed(base_offset: int | None, last_offset: int | None) -> dict[str, str | int | None]:
    return {"state": "committed", "base_offset": base_offset, "last_offset": last_offset}


def token(number: int, epoch: int, session: str = "s1") -> Token:
    return Token(grant(number), epoch, session)


def test_007_a_fenced_writer_never_disturbs_its_successor() -> None:
    driver = Driver(replicas=3)
    driver.seat(4, 1, "s4")
    assert stored(driver.append(token=token(4, 1, "s4"))) == (0, 0)
    driver.seat(6, 2, "s6", "ExclusiveWithFencing")
    for offset in range(1, 6):
        assert stored(driver.append(token=token(6, 2, "s6"))) == (offset, offset)
        assert driver.append(token=token(4, 1, "s4")) == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.log_end == 6


def test_022_a_late_clear_leaves_the_new_holder() -> None:
    driver = Driver()
    driver.seat(1, 1)
    driver.seat(2, 2, "s2")
    driver.clear(1, 1)
    assert stored(driver.append(token=token(2, 2, "s2"))) == (0, 0)


def test_024_an_append_without_token_does_not_pass_a_held_slot() -> None:
    driver = Driver()
    driver.seat(1, 1)
    refusal = ProducerBusy(reason="exclusive_present", holder_mode="Exclusive", current_epoch=1, queue_len=0)
    assert driver.append() == refusal
    assert driver.log_end == 0


def test_025_a_delayed_append_after_release_is_refused() -> None:
    driver = Driver()
    driver.seat(1, 1)
    driver.clear(1, 1)
    assert driver.append(token=token(1, 1)) == ProducerFenced(current_epoch=1, reason="slot_free")
    assert driver.log_end == 0
    assert stored(driver.append()) == (0, 0)


def test_118_releasing_kills_the_token_and_keeps_the_epoch() -> None:
    driver = Driver()
    driver.seat(1, 3)
    assert driver.clear(1, 3).topic_epoch == driver.machine.topic_epoch == 3
    assert isinstance(driver.append(token=token(1, 3)), ProducerFenced)


def test_a_topic_that_requires_a_fence_refuses_writes_without_for_good_whether_the_slot_is_held_or_free() -> None:
    driver = Driver(require_fence=True)
    assert driver.append() == FencingTokenRequired()
    driver.seat(1, 1)
    assert driver.append() == FencingTokenRequired()
    assert stored(driver.append(token=token(1, 1))) == (0, 0)
    driver.clear(1, 1)
    assert driver.append() == FencingTokenRequired()


def test_a_batch_carries_the_epoch_it_was_written_under() -> None:
    driver = Driver()
    driver.append()
    driver.seat(1, 4)
    driver.append(token=token(1, 4))
    driver.clear(1, 4)
    driver.append()
    batches = driver.machine.log.read(0, 1 << 20).batches
    assert [batch.writer_epoch for batch in batches] == [0, 4, 4]


@pytest.mark.parametrize("topic_id", [None, TOPIC_ID])
def test_a_token_of_a_deleted_topic_of_this_name_is_inconsistent_topic_id(topic_id: int | None) -> None:
    driver = Driver()
    driver.seat(1, 1)
    stale = Token(grant(1, topic_id=700), 9, "s1")
    assert driver.append(token=stale, topic_id=topic_id) == InconsistentTopicId(topic_id=TOPIC_ID)


def test_another_topic_id_is_refused_first() -> None:
    driver = Driver()
    driver.seat(1, 1)
    assert driver.append(topic_id=700) == InconsistentTopicId(topic_id=TOPIC_ID)
    assert stored(driver.append(topic_id=TOPIC_ID, token=token(1, 1))) == (0, 0)


def test_a_fenced_writer_gets_the_outcome_certificate_of_its_last_batch() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    driver.seat(1, 1)
    assert stored(driver.append(Stamp(NAMED, 0, 0), 3, token=token(1, 1))) == (0, 2)
    driver.seat(2, 2, "s2")

    def refused(stamp: Stamp, count: int) -> object:
        result = driver.append(stamp, count, token=token(1, 1))
        assert isinstance(result, ProducerFenced)
        return result.fields["outcome"]

    assert refused(Stamp(NAMED, 0, 0), 3) == committed(0, 2)
    assert refused(Stamp(NAMED, 0, 3), 1) == ABSENT
    assert refused(Stamp(OTHER_ANONYMOUS, 0, 0), 1) == FORGOTTEN
    plain = driver.append(token=token(1, 1))
    assert plain == ProducerFenced(current_epoch=2, reason="superseded")
    assert driver.append(Stamp(NAMED, 0, 0), 3, token=token(2, 3, "s2")) == InvalidFencingToken(current_epoch=2)


def test_checks_are_made_in_the_order_of_the_contract() -> None:
    driver = Driver()
    driver.enrol(NAMED, 1)
    driver.seat(1, 1)
    bad_stamp, bad_token = Stamp(NAMED, 0, 9), token(1, 0)
    assert isinstance(driver.append(bad_stamp, token=bad_token, topic_id=1, if_log_end=9), InconsistentTopicId)
    assert isinstance(driver.append(bad_stamp, token=bad_token, if_log_end=9), ProducerFenced)
    assert isinstance(driver.append(bad_stamp, token=token(1, 1), if_log_end=9), InvalidProducerEpoch)
    assert isinstance(driver.append(Stamp(NAMED, 1, 9), token=token(1, 1), if_log_end=9), OutOfOrderSequence)
    assert isinstance(driver.append(Stamp(NAMED, 1, 0), token=token(1, 1), if_log_end=9), OffsetMismatch)
    assert stored(driver.append(Stamp(NAMED, 1, 0), token=token(1, 1), if_log_end=0)) == (0, 0)
    assert isinstance(driver.append(Stamp(NAMED, 1, 0), token=token(1, 0)), ProducerFenced)
    assert repeated(driver.append(Stamp(NAMED, 1, 0), token=token(1, 1), if_log_end=9)) == (0, 0)


def test_bytes_that_are_no_command_are_a_bug() -> None:
    with pytest.raises(msgspec.DecodeError):
        Driver().machine.apply(1, 1, b"nonsense")

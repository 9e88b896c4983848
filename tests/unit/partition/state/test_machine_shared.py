"""Producers that share a slot: the right column of table 6.2, and cases of SEMANTICS 11; the number is in the name."""

import pytest

from stockade.partition.commands import InstallSeats, SharedHolder, SlotState, Token
from stockade.partition.errors import FencingTokenRequired, InvalidFencingToken, ProducerBusy, ProducerFenced

from ..driver import Driver, grant, state, stored

A, B = SharedHolder(grant(1), "sa", "a"), SharedHolder(grant(2), "sb", "b")


def share(driver: Driver, index: int, *seats: SharedHolder, epoch: int = 0) -> SlotState:
    result = driver.apply(InstallSeats(epoch, index, list(seats)))
    assert isinstance(result, SlotState)
    return result


def token(seat: SharedHolder, epoch: int = 0) -> Token:
    return Token(seat.grant_id, epoch, seat.session)


def test_all_holders_of_a_shared_slot_may_write() -> None:
    driver = Driver(replicas=3)
    assert share(driver, 1, A) == SlotState(done=True, topic_epoch=0, log_end=0, previous=0)
    assert share(driver, 2, A, B) == SlotState(done=True, topic_epoch=0, log_end=0, previous=1)
    assert stored(driver.append(token=token(A))) == (0, 0)
    assert stored(driver.append(token=token(B))) == (1, 1)
    assert stored(driver.append()) == (2, 2)


def test_a_token_without_a_shared_grant_here_is_refused() -> None:
    driver = Driver(replicas=3)
    share(driver, 1, A)
    assert driver.append(token=token(B)) == ProducerFenced(current_epoch=0, reason="slot_free")
    stranger = Token(A.grant_id, 0, "other")
    assert driver.append(token=stranger) == ProducerFenced(current_epoch=0, reason="other_session")
    assert driver.append(token=token(A, 1)) == InvalidFencingToken(current_epoch=0)


def test_a_shared_slot_does_not_replace_the_token_that_a_topic_requires() -> None:
    driver = Driver(require_fence=True)
    share(driver, 1, A)
    assert driver.append() == FencingTokenRequired()
    assert stored(driver.append(token=token(A))) == (0, 0)


def test_a_shared_holder_that_leaves_is_refused_and_the_others_still_write() -> None:
    driver = Driver(replicas=3)
    share(driver, 2, A, B)
    share(driver, 3, B)
    assert driver.append(token=token(A)) == ProducerFenced(current_epoch=0, reason="slot_free")
    assert stored(driver.append(token=token(B))) == (0, 0)


def test_an_older_set_of_shared_holders_that_arrives_late_changes_nothing() -> None:
    driver = Driver(replicas=3)
    share(driver, 5, B)
    before = state(driver.machine)
    assert share(driver, 4, A, B) == SlotState(done=False, topic_epoch=0)
    assert share(driver, 5, B) == SlotState(done=True, topic_epoch=0, log_end=0, previous=0)
    assert state(driver.machine) == before


def test_004_an_exclusive_grant_evicts_every_seat() -> None:
    driver = Driver(replicas=3)
    share(driver, 2, A, B)
    assert driver.seat(3, 1).done
    assert driver.append(token=token(A)) == ProducerFenced(current_epoch=1, reason="superseded")
    assert isinstance(driver.append(), ProducerBusy)
    assert share(driver, 2, A, B) == SlotState(done=False, topic_epoch=1)


def test_seats_after_an_exclusive_grant_carry_its_epoch_and_free_the_slot() -> None:
    driver = Driver(replicas=3)
    driver.seat(1, 1, "sa")
    assert share(driver, 2, B, epoch=1) == SlotState(done=True, topic_epoch=1, log_end=0, previous=1)
    assert stored(driver.append(token=token(B, 1))) == (0, 0)
    assert driver.append(token=Token(grant(1), 1, "sa")) == ProducerFenced(current_epoch=1, reason="slot_free")
    assert not driver.seat(1, 1, "sa").done


def test_an_empty_set_leaves_the_slot_free() -> None:
    driver = Driver(replicas=3)
    share(driver, 1, A)
    share(driver, 2)
    assert driver.machine.fence.sharing == {}
    assert driver.append(token=token(A)) == ProducerFenced(current_epoch=0, reason="slot_free")


@pytest.mark.parametrize("index", [1, 2])
def test_a_clear_ends_the_seats_unless_it_comes_late(index: int) -> None:
    driver = Driver(replicas=3)
    share(driver, 2, A)
    driver.clear(index, 0)
    assert (A.grant_id in driver.machine.fence.sharing) == (index < 2)

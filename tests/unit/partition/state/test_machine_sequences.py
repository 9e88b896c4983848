"""Producers and their sequences: cases of SEMANTICS 11 that one partition decides; the number is in the name."""

import pytest

from stockade.partition.commands import InstallProducer, NotEnrolled, ProducerInstalled, Stamp, Token
from stockade.partition.errors import (
    InvalidProducerEpoch,
    OffsetMismatch,
    OutOfOrderSequence,
    PermissionDenied,
    UnknownProducerId,
)
from stockade.partition.state.producers import judge

from ..driver import ANONYMOUS, NAMED, OTHER_ANONYMOUS, Driver, grant, repeated, state, stored

FORGOTTEN = {"state": "unknown", "base_offset": None, "last_offset": None, "reason": "forgotten"}
ABSENT = {"state": "absent", "base_offset": None, "last_offset": None}


def committed(base_offset: int | None, last_offset: int | None) -> dict[str, str | int | None]:
    return {"state": "committed", "base_offset": base_offset, "last_offset": last_offset}


def token(number: int, epoch: int, session: str = "s1") -> Token:
    return Token(grant(number), epoch, session)


def test_060_numbers_follow_one_another() -> None:
    driver = Driver(replicas=3)
    driver.enrol(ANONYMOUS)
    assert stored(driver.send(ANONYMOUS, 0, 0)) == (0, 0)
    assert stored(driver.send(ANONYMOUS, 0, 1)) == (1, 1)
    assert repeated(driver.send(ANONYMOUS, 0, 1)) == (1, 1)
    assert driver.send(ANONYMOUS, 0, 1, 2) == OutOfOrderSequence(reason="overlap", expected_seq=2, last_seq=1)
    assert driver.send(ANONYMOUS, 0, 5) == OutOfOrderSequence(reason="gap", expected_seq=2, last_seq=1)
    assert stored(driver.send(ANONYMOUS, 1, 0)) == (2, 2)
    assert driver.send(ANONYMOUS, 0, 2) == InvalidProducerEpoch(current_epoch=1, outcome=ABSENT)


def test_another_principal_cannot_write_as_the_producer_but_gets_outcomes_of_older_epochs() -> None:
    driver = Driver(replicas=3)
    driver.apply(InstallProducer(NAMED, 1, principal="p"))
    for epoch in (1, 2):
        refused = driver.append(Stamp(NAMED, epoch, 0), principal="q")
        assert refused == PermissionDenied(f"the producer id {NAMED} is another principal's")
    assert driver.append(Stamp(NAMED, 0, 0), principal="q") == InvalidProducerEpoch(current_epoch=1, outcome=ABSENT)
    assert stored(driver.append(Stamp(NAMED, 1, 0), principal="p")) == (0, 0)


def test_064_an_entry_made_by_a_fence_takes_only_0_of_its_epoch() -> None:
    driver = Driver()
    driver.enrol(NAMED, 2)
    assert driver.send(NAMED, 0, 0) == InvalidProducerEpoch(current_epoch=2, outcome=ABSENT)
    assert driver.send(NAMED, 2, 17) == OutOfOrderSequence(reason="no_state", expected_seq=0, last_seq=-1)
    assert stored(driver.send(NAMED, 2, 0)) == (0, 0)


def test_065_after_a_fence_only_0_follows() -> None:
    driver = Driver()
    driver.enrol(ANONYMOUS)
    driver.send(ANONYMOUS, 0, 0, 2)
    driver.enrol(ANONYMOUS, 1)
    assert driver.send(ANONYMOUS, 1, 2) == OutOfOrderSequence(reason="new_epoch", expected_seq=0, last_seq=-1)
    assert driver.send(ANONYMOUS, 2, 2) == OutOfOrderSequence(reason="new_epoch", expected_seq=0, last_seq=-1)
    assert stored(driver.send(ANONYMOUS, 1, 0)) == (2, 2)


def test_066_a_refused_batch_and_a_judgement_change_no_state() -> None:
    driver = Driver()
    driver.enrol(ANONYMOUS)
    driver.send(ANONYMOUS, 0, 0, 2)
    before = state(driver.machine)
    entry = driver.machine.producer(ANONYMOUS)
    assert entry is not None
    for fits in (Stamp(ANONYMOUS, 0, 2), Stamp(ANONYMOUS, 1, 0)):
        assert judge(entry, fits, 3, strict=False) is None
    driver.send(ANONYMOUS, 0, 5)
    driver.send(ANONYMOUS, 0, 1)
    driver.send(ANONYMOUS, 1, 1)
    driver.send(OTHER_ANONYMOUS, 0, 0)
    driver.append(Stamp(ANONYMOUS, 1, 0), if_log_end=99)  # a new epoch that fails the last check is not begun
    driver.append(token=token(1, 1))
    assert state(driver.machine) == before


def test_067_the_newest_batch_resent_keeps_its_offsets() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    driver.append(count=4)
    driver.send(NAMED, 0, 0)
    first = driver.send(NAMED, 0, 1, 3)
    again = driver.send(NAMED, 0, 1, 3)
    assert (stored(first), repeated(again), driver.log_end) == ((5, 7), (5, 7), 8)
    assert again.timestamp_ms == first.timestamp_ms  # type: ignore[union-attr]


def test_068_part_of_a_batch_resent_is_refused() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    driver.send(NAMED, 0, 0, 3)
    assert driver.send(NAMED, 0, 1, 2) == OutOfOrderSequence(reason="overlap", expected_seq=3, last_seq=2)
    assert driver.log_end == 3


@pytest.mark.parametrize("strict", [False, True])
def test_069_five_batches_are_remembered(strict: bool) -> None:
    driver = Driver(strict_sequence=strict)
    driver.enrol(NAMED)
    for sequence in range(6):
        driver.send(NAMED, 0, sequence)
    assert repeated(driver.send(NAMED, 0, 1)) == (1, 1)
    sixth = driver.send(NAMED, 0, 0)
    if strict:
        assert sixth == OutOfOrderSequence(reason="overlap", expected_seq=6, last_seq=5)
    else:
        assert repeated(sixth) == (None, None)
    assert driver.log_end == 6


def test_070_an_old_epoch_is_refused() -> None:
    driver = Driver()
    driver.enrol(NAMED, 1)
    driver.send(NAMED, 1, 0)
    assert driver.send(NAMED, 0, 0) == InvalidProducerEpoch(current_epoch=1, outcome=ABSENT)


def test_071_producers_have_sequences_of_their_own() -> None:
    driver = Driver()
    driver.enrol(ANONYMOUS)
    driver.enrol(OTHER_ANONYMOUS)
    for sequence in range(3):
        for pid in (ANONYMOUS, OTHER_ANONYMOUS):
            stored(driver.send(pid, 0, sequence))
            repeated(driver.send(pid, 0, sequence))
    assert driver.log_end == 6


def test_072_batches_without_stamp_are_never_deduplicated() -> None:
    driver = Driver()
    assert [stored(driver.append(count=2)) for _ in range(3)] == [(0, 1), (2, 3), (4, 5)]


def test_073_a_fresh_producer_does_not_begin_at_1() -> None:
    driver = Driver()
    assert driver.send(ANONYMOUS, 0, 1) == NotEnrolled(ANONYMOUS)
    driver.enrol(ANONYMOUS)
    assert driver.send(ANONYMOUS, 0, 1) == OutOfOrderSequence(reason="no_state", expected_seq=0, last_seq=-1)
    assert driver.log_end == 0


def test_074_a_hole_of_one_is_refused() -> None:
    driver = Driver()
    driver.enrol(ANONYMOUS)
    driver.send(ANONYMOUS, 0, 0, 3)
    assert driver.send(ANONYMOUS, 0, 4) == OutOfOrderSequence(reason="gap", expected_seq=3, last_seq=2)


def test_075_a_batch_sent_twice_at_once_is_stored_once() -> None:
    driver = Driver(replicas=3)
    driver.enrol(NAMED)
    first, second = driver.send(NAMED, 0, 0, 5), driver.send(NAMED, 0, 0, 5)
    assert stored(first) == repeated(second) == (0, 4)


def test_076_a_reordered_pipeline_on_a_new_partition_loses_nothing() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    assert isinstance(driver.send(NAMED, 0, 17, 5), OutOfOrderSequence)
    assert stored(driver.send(NAMED, 0, 0, 17)) == (0, 16)
    assert stored(driver.send(NAMED, 0, 17, 5)) == (17, 21)


def test_082_a_retry_after_an_epoch_bump_learns_that_it_was_stored() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    driver.send(NAMED, 0, 0, 4)
    assert driver.apply(InstallProducer(NAMED, 1)) == ProducerInstalled(1)
    assert driver.send(NAMED, 0, 0, 4) == InvalidProducerEpoch(current_epoch=1, outcome=committed(0, 3))
    assert driver.send(NAMED, 0, 4) == InvalidProducerEpoch(current_epoch=1, outcome=ABSENT)
    assert driver.send(NAMED, 2, 0) == InvalidProducerEpoch(current_epoch=1, outcome=ABSENT)


def test_083_a_duplicate_of_a_conditional_append_is_no_mismatch() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    assert stored(driver.append(Stamp(NAMED, 0, 0), 2, if_log_end=0)) == (0, 1)
    assert repeated(driver.append(Stamp(NAMED, 0, 0), 2, if_log_end=0)) == (0, 1)
    assert stored(driver.append(Stamp(NAMED, 0, 2), 1, if_log_end=2)) == (2, 2)
    assert driver.append(if_log_end=2) == OffsetMismatch(log_end=3)
    assert stored(driver.append(if_log_end=3)) == (3, 3)


def test_084_after_a_restart_the_five_newest_are_still_duplicates() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    for sequence in range(7):
        driver.send(NAMED, 0, sequence)
    restarted = driver.replayed()
    assert state(restarted) == state(driver.machine)
    driver.machines = [restarted]
    for sequence in range(2, 7):
        assert repeated(driver.send(NAMED, 0, sequence)) == (sequence, sequence)


def test_116_a_number_below_0_was_never_stored() -> None:
    driver = Driver()
    driver.enrol(NAMED)
    driver.send(NAMED, 0, 0, 11)
    refusal = OutOfOrderSequence(reason="gap", expected_seq=11, last_seq=10)
    assert driver.send(NAMED, 0, 2147483640, 6) == refusal


def full(max_producers: int = 3) -> Driver:
    """Producers 10, 12 and 14 enrolled, 10 used last."""
    driver = Driver(replicas=3, max_producers=max_producers)
    for pid in (10, 12, 14):
        driver.enrol(pid)
        driver.send(pid, 0, 0)
    driver.send(10, 0, 1)
    return driver


def test_124_the_least_recently_used_producer_is_forgotten_everywhere_alike() -> None:
    driver = full()
    driver.enrol(16)
    assert list(driver.machine.producers.entries) == [14, 10, 16]
    assert driver.machine.producers.max_dropped_pid == 12
    assert driver.send(12, 0, 1) == UnknownProducerId(log_start=0, log_end=4)
    assert stored(driver.send(10, 0, 2)) == (4, 4)


def test_a_producer_that_was_forgotten_may_begin_anew_once_enrolled() -> None:
    driver = full()
    driver.enrol(16)
    assert driver.send(12, 0, 0) == NotEnrolled(12)
    driver.enrol(12)
    assert stored(driver.send(12, 0, 0)) == (4, 4)


def test_a_producer_id_above_every_forgotten_one_is_not_enrolled_rather_than_unknown() -> None:
    driver = full()
    driver.enrol(16)
    assert driver.send(18, 0, 5) == NotEnrolled(18)


def test_a_duplicate_does_not_count_as_use() -> None:
    driver = full()
    repeated(driver.send(12, 0, 0))
    driver.enrol(16)
    assert driver.machine.producer(12) is None


def test_an_installed_epoch_counts_as_use() -> None:
    driver = full()
    driver.enrol(12, 1)
    driver.enrol(16)
    assert list(driver.machine.producers.entries) == [10, 12, 16]


def test_a_batch_of_a_forgotten_producer_is_never_certified_absent() -> None:
    driver = full()
    driver.enrol(16)
    driver.enrol(12, 5)
    assert driver.send(12, 0, 0) == InvalidProducerEpoch(current_epoch=5, outcome=FORGOTTEN)
    assert driver.send(12, 0, 3) == InvalidProducerEpoch(current_epoch=5, outcome=FORGOTTEN)


def test_with_max_producers_1_the_latest_producer_replaces_the_one_before() -> None:
    driver = Driver(max_producers=1)
    for pid in (8, 10, 8):
        driver.enrol(pid)
        stored(driver.send(pid, 0, 0))
    assert list(driver.machine.producers.entries) == [8]


def test_installing_an_older_epoch_changes_nothing() -> None:
    driver = Driver()
    driver.enrol(NAMED, 4)
    before = state(driver.machine)
    assert driver.apply(InstallProducer(NAMED, 3)) == ProducerInstalled(4)
    assert state(driver.machine) == before


def test_an_epoch_older_than_the_remembered_ones_has_an_unknown_outcome_older_epoch_not_forgotten() -> None:
    """It remembers one earlier epoch with records. Of those before it says that they are older, not that it forgot."""
    driver = full()
    for epoch in (1, 2):
        driver.enrol(14, epoch)
        stored(driver.send(14, epoch, 0))
    outcomes = {}
    for epoch in (0, 1):
        refusal = driver.send(14, epoch, 0)
        assert isinstance(refusal, InvalidProducerEpoch)
        outcomes[epoch] = refusal.fields["outcome"]
    assert outcomes[0] == FORGOTTEN | {"reason": "older_epoch"}
    assert outcomes[1]["state"] == "committed"

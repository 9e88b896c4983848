"""Consumer groups on a partition, and writers that must own it: SEMANTICS 5.5, 5.8 (A5), 5.10; cases by number."""

from typing import Any

import pytest

from stockade.partition.commands import (
    CommitPosition,
    InstallReader,
    PositionCommitted,
    ReaderInstalled,
    Result,
    Stamp,
    Token,
)
from stockade.partition.errors import (
    NotOwner,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    StockadeError,
    ThrottlingQuotaExceeded,
)
from stockade.partition.state import readers
from stockade.partition.state.readers import Position

from ..driver import NAMED, Driver, grant, state, stored


def owned(fence_epoch: int = 1) -> Driver:
    driver = Driver(replicas=3)
    driver.append(count=10)
    driver.apply(InstallReader("g", fence_epoch))
    return driver


def commit(driver: Driver, offset: int, fence_epoch: int | None, group: str = "g") -> Result | StockadeError:
    return driver.apply(CommitPosition(group, offset, "note", fence_epoch))


def not_owner(fence_epoch: int, group: str = "g") -> NotOwner:
    return NotOwner(fence_epoch=fence_epoch, group=group)


def test_041_when_a_second_reader_owns_the_partition_the_first_neither_reads_nor_commits() -> None:
    driver = owned()
    assert commit(driver, 4, 1) == PositionCommitted()
    assert driver.machine.readers.judge("g", 1) is None
    assert driver.apply(InstallReader("g", 2)) == ReaderInstalled(2)
    assert driver.machine.readers.judge("g", 1) == commit(driver, 9, 1) == not_owner(2)
    assert driver.machine.readers.positions["g"] == Position(4, "note")
    assert commit(driver, 5, 2) == PositionCommitted()


def test_042_after_a_reclaim_a_delayed_write_of_the_old_owner_is_refused() -> None:
    driver = Driver(replicas=3, writer_group="g")
    driver.apply(InstallReader("g", 3))
    assert stored(driver.append(fence_epoch=3)) == (0, 0)
    driver.apply(InstallReader("g", 3, owned=False))  # its session ended
    assert driver.append(fence_epoch=3) == not_owner(3)
    driver.apply(InstallReader("g", 4))
    assert driver.append(fence_epoch=3) == not_owner(4)
    assert stored(driver.append(fence_epoch=4)) == (1, 1)


@pytest.mark.parametrize("fence_epoch", [None, 0, 6, 8])
def test_only_the_present_fence_epoch_owns_the_partition(fence_epoch: int | None) -> None:
    driver = owned(7)
    assert driver.machine.readers.judge("g", fence_epoch) == commit(driver, 1, fence_epoch) == not_owner(7)


def test_a_group_that_never_owned_the_partition_commits_without_a_fence_and_reads_nothing_under_guard() -> None:
    driver = owned()
    assert commit(driver, 3, None, "other") == PositionCommitted()
    assert driver.machine.readers.judge("other", 1) == commit(driver, 4, 1, "other") == not_owner(0, "other")
    assert driver.machine.readers.positions["other"].offset == 3, "a former owner may be sooner than the fence"


def test_installs_that_come_late_change_nothing() -> None:
    driver = owned(5)
    driver.apply(InstallReader("g", 5, owned=False))
    before = state(driver.machine)
    for late in (InstallReader("g", 5), InstallReader("g", 4), InstallReader("g", 5, owned=False)):
        assert driver.apply(late) == ReaderInstalled(5)
        assert state(driver.machine) == before


def test_positions_may_go_back_and_lie_before_the_log_but_not_behind_it() -> None:
    driver = owned()
    for offset in (10, 2, 0):
        assert commit(driver, offset, 1) == PositionCommitted()
    assert commit(driver, 11, 1) == OffsetOutOfRange(11, 0, 10)
    assert driver.machine.readers.positions["g"].offset == 0


def test_groups_with_a_position_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "GROUPS_MAX", 2)
    driver = Driver(replicas=3)
    for group in "ab":
        assert commit(driver, 0, None, group) == PositionCommitted()
    assert isinstance(commit(driver, 0, None, "c"), ThrottlingQuotaExceeded)
    assert commit(driver, 0, None, "a") == PositionCommitted()


def test_a_forgotten_position_is_no_position_and_makes_room_for_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "GROUPS_MAX", 1)
    driver = Driver(replicas=3)
    assert commit(driver, 0, None, "a") == PositionCommitted()
    for _ in range(2):  # a repetition changes nothing
        assert driver.apply(CommitPosition("a", None)) == PositionCommitted()
    assert driver.machine.readers.positions == {}
    assert commit(driver, 0, None, "b") == PositionCommitted()


def test_a_reader_that_was_replaced_cannot_let_the_position_be_forgotten() -> None:
    driver = owned(2)
    assert commit(driver, 4, 2) == PositionCommitted()
    for fence_epoch in (None, 1, 3):
        assert driver.apply(CommitPosition("g", None, None, fence_epoch)) == not_owner(2)
    assert driver.machine.readers.positions["g"].offset == 4
    assert driver.apply(CommitPosition("g", None, None, 2)) == PositionCommitted()
    assert driver.machine.readers.judge("g", 2) is None, "its fence stays"
    assert driver.machine.readers.judge("g", 1) == not_owner(2)


def test_without_an_owner_a_topic_with_a_writer_group_takes_no_writes() -> None:
    driver = Driver(replicas=3, writer_group="g")
    assert driver.append() == driver.append(fence_epoch=0) == not_owner(0)


def test_the_slot_is_looked_at_before_the_owner_and_the_owner_before_sequences() -> None:
    driver = Driver(replicas=3, writer_group="g")
    driver.apply(InstallReader("g", 1))
    driver.enrol(NAMED)
    driver.seat(1, 1)
    late, right = Token(grant(1), 0, "s1"), Token(grant(1), 1, "s1")
    stamp = Stamp(NAMED, 0, 5)
    assert isinstance(driver.append(stamp, token=late, fence_epoch=9), ProducerFenced)
    assert isinstance(driver.append(stamp, token=right, fence_epoch=9), NotOwner)
    assert isinstance(driver.append(stamp, token=right, fence_epoch=1), OutOfOrderSequence)


def test_a_writer_that_lost_its_ownership_gets_the_outcome_certificate_of_its_batch() -> None:
    driver = Driver(replicas=3, writer_group="g")
    driver.apply(InstallReader("g", 1))
    driver.enrol(NAMED)
    first, second = Stamp(NAMED, 0, 0), Stamp(NAMED, 0, 1)
    assert not isinstance(driver.append(first, fence_epoch=1), NotOwner)
    driver.apply(InstallReader("g", 2))

    def refused(stamp: Stamp | None, fence_epoch: int) -> dict[str, Any]:
        answer = driver.append(stamp, fence_epoch=fence_epoch)
        assert isinstance(answer, NotOwner)
        return answer.fields

    assert [refused(stamp, 1)["outcome"]["state"] for stamp in (first, second)] == ["committed", "absent"]
    assert "outcome" not in refused(second, 3), "its owner may be installed at any time"
    assert "outcome" not in refused(None, 1)

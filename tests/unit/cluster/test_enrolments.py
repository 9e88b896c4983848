"""Which partitions are told of which producer epochs (SEMANTICS 5.8 A6, 6.5)."""

import pytest

from stockade.cluster import enrolments
from stockade.cluster.catalog import group_id
from stockade.cluster.commands import (
    Enrolled,
    GroupId,
    ProducerFence,
    ProducerFenceInstalled,
    ProducerState,
)
from stockade.cluster.work import InstallProducerWork
from stockade.partition.commands import Appended, NotEnrolled, Stamp
from stockade.partition.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartition,
)

from .driver import Driver, House
from .producers import EXHAUSTED, PID, at, enrol, fenced, producer


def test_an_enrolled_partition_is_owed_every_later_epoch_until_it_has_it() -> None:
    driver = Driver()
    groups = [group_id(driver.topic(partitions=3), partition) for partition in (2, 0)]
    driver.init("w")
    for group in groups:
        assert enrol(driver, PID, group) == Enrolled(PID, 0, 0)
    assert list(driver.machine.work()) == [], "the partition that asked installs what it was answered"
    answer = driver.init("w")
    fences = [ProducerFence(PID, 1, group) for group in sorted(groups)]
    assert answer == ProducerState(PID, 1, "w", fences)
    assert [w for f in fences for w in driver.machine.work_on(f.group_id)] == [
        InstallProducerWork(fence.group_id, PID, 1, driver.index) for fence in fences
    ]
    driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=0, group_id=groups[0]))
    assert not driver.machine.is_installed(fences[0]), "an older epoch does not settle it"
    for fence_ in fences:
        driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=1, group_id=fence_.group_id))
        assert driver.machine.is_installed(fence_)
        driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=1, group_id=fence_.group_id))
    assert list(driver.machine.work()) == []
    assert driver.init("w") == ProducerState(PID, 2, "w", [ProducerFence(PID, 2, g) for g in sorted(groups)])


def test_a_retry_is_not_answered_sooner_than_the_first_call() -> None:
    driver = Driver()
    group = group_id(driver.topic(), 0)
    driver.init("w")
    enrol(driver, PID, group)
    first = driver.init("w", nonce="n")
    assert isinstance(first, ProducerState)
    assert first.pending == [ProducerFence(PID, 1, group)]
    assert driver.init("w", nonce="n") == first
    assert driver.init("w", pair=(PID, 1)) == ProducerState(PID, 2, "w", [ProducerFence(PID, 2, group)])
    assert driver.init("w", pair=(PID, 1)) == ProducerState(PID, 2, "w", [ProducerFence(PID, 2, group)])


def test_enrolling_again_settles_nothing_that_is_owed() -> None:
    driver = Driver()
    group = group_id(driver.topic(), 0)
    driver.init("w")
    enrol(driver, PID, group)
    driver.init("w")
    assert enrol(driver, PID, group) == Enrolled(PID, 1, 0)
    assert not driver.machine.is_installed(ProducerFence(PID, 1, group))


def test_a_rotated_out_id_is_shut_out_of_every_partition_before_the_new_one_is_given() -> None:
    driver = at(EXHAUSTED)
    group = group_id(driver.topic(), 1)
    enrol(driver, PID, group)
    answer = driver.init("w")
    last_word = ProducerFence(PID, 32767, group)
    assert answer == ProducerState(PID + 2, 0, "w", [last_word])
    assert enrol(driver, PID, group) == fenced(0)
    assert driver.machine.producer_by_pid(PID) == answer
    driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=32767, group_id=group))
    assert driver.machine.is_installed(last_word)
    assert driver.init("w") == producer(PID + 2, 1), "the old id is enrolled no more"


def test_only_issued_ids_are_enrolled() -> None:
    driver = Driver()
    group = group_id(driver.topic(), 0)
    driver.init("w")
    driver.init(None)
    for pid in (999, 998, 1003, 1002, 0, -1):
        assert enrol(driver, pid, group) == InvalidProducerIdMapping()
    assert enrol(driver, 1000, group) == Enrolled(1000, 0, 0)
    assert enrol(driver, PID, group) == Enrolled(PID, 0, 0)
    for gone in (group + 5, group_id(99, 0)):
        assert isinstance(enrol(driver, PID, gone), UnknownTopicOrPartition)


def test_a_deleted_topic_is_owed_nothing() -> None:
    driver = Driver()
    group = group_id(driver.topic(), 0)
    driver.init("w")
    enrol(driver, PID, group)
    answer = driver.init("w")
    assert isinstance(answer, ProducerState)
    driver.delete()
    assert all(driver.machine.is_installed(fence_) for fence_ in answer.pending)
    assert list(driver.machine.work()) == []
    assert driver.init("w") == producer(PID, 2)


def test_enrolments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrolments, "ENROLMENTS_MAX", 2)
    driver = Driver()
    topic_id = driver.topic(partitions=3)
    driver.init("w")
    for partition in (0, 1):
        assert enrol(driver, PID, group_id(topic_id, partition)) == Enrolled(PID, 0, 0)
    assert enrol(driver, PID, group_id(topic_id, 2)) == ThrottlingQuotaExceeded(retry_after_ms=1000)
    assert enrol(driver, PID, group_id(topic_id, 1)) == Enrolled(PID, 0, 0)
    driver.delete()
    topic_id = driver.topic(partitions=3)
    assert enrol(driver, PID, group_id(topic_id, 2)) == Enrolled(PID, 0, 0)


def test_059_no_partition_takes_an_old_instance_also_where_the_new_one_never_was() -> None:
    house = House()
    topic_id = house.topic()
    house.init("w")
    introduce(house, group_id(topic_id, 0))
    assert isinstance(house.append(None, 0, Stamp(PID, 0, 0)), Appended)
    house.init("w")
    house.settle()
    assert isinstance(house.append(None, 0, Stamp(PID, 0, 1)), InvalidProducerEpoch)
    assert house.append(None, 1, Stamp(PID, 0, 0)) == NotEnrolled(PID)
    introduce(house, group_id(topic_id, 1))
    assert isinstance(house.append(None, 1, Stamp(PID, 0, 0)), InvalidProducerEpoch)
    assert isinstance(house.append(None, 1, Stamp(PID, 1, 0)), Appended)


def introduce(house: House, group: GroupId) -> None:
    """As a partition's leader does with a producer that it does not know."""
    answer = enrol(house, PID, group)
    assert isinstance(answer, Enrolled)
    house.tell(InstallProducerWork(group, PID, answer.epoch, house.index))

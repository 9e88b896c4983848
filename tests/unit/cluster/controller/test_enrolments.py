"""Which partitions are told of which producer epochs (SEMANTICS 5.8 A6, 6.5)."""

import pytest

from stockade.cluster.controller import producers
from stockade.cluster.controller.commands import (
    Enrol,
    Enrolled,
    ForgetNames,
    GroupId,
    ProducerFence,
    ProducerFenceInstalled,
    ProducerState,
    WithdrawProducers,
)
from stockade.cluster.controller.ownership.work import ProducerInstall, ProducerWithdrawal
from stockade.cluster.controller.producers import NAME_TTL_MS
from stockade.cluster.controller.topology.catalog import group_id
from stockade.partition.commands import Appended, NotEnrolled, Stamp
from stockade.partition.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartition,
)

from ..driver import Driver, House
from ..producers import EXHAUSTED, PID, at, enrol, fenced, producer


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
    assert sorted(driver.machine.work(), key=lambda work: work.group_id) == [
        ProducerInstall(fence.group_id, PID, 1, driver.index) for fence in fences
    ]
    driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=0, group_id=groups[0]))
    assert not driver.machine.registry.enrolments.is_installed(fences[0]), "an older epoch does not settle it"
    for fence_ in fences:
        driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=1, group_id=fence_.group_id))
        assert driver.machine.registry.enrolments.is_installed(fence_)
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
    assert not driver.machine.registry.enrolments.is_installed(ProducerFence(PID, 1, group))


def test_a_rotated_out_id_is_shut_out_of_every_partition_before_the_new_one_is_given() -> None:
    driver = at(EXHAUSTED)
    group = group_id(driver.topic(), 1)
    enrol(driver, PID, group)
    answer = driver.init("w")
    last_word = ProducerFence(PID, 32767, group)
    assert answer == ProducerState(PID + 2, 0, "w", [last_word])
    assert enrol(driver, PID, group) == fenced(0)
    assert driver.machine.registry.find(PID) == answer
    driver.do(ProducerFenceInstalled(now_ms=0, pid=PID, epoch=32767, group_id=group))
    assert driver.machine.registry.enrolments.is_installed(last_word)
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
    assert all(driver.machine.registry.enrolments.is_installed(fence_) for fence_ in answer.pending)
    assert list(driver.machine.work()) == []
    assert driver.init("w") == producer(PID, 2)


def test_enrolments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "ENROLMENTS_MAX", 2)
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


def enrolled_house() -> tuple[House, GroupId]:
    """The name "w" writes to partition 0, where its entry is."""
    house = House()
    group = group_id(house.topic(), 0)
    house.init("w")
    introduce(house, group)
    return house, group


def introduce(house: House, group: GroupId) -> ProducerInstall:
    """The partition asks about the producer, and installs what it is answered."""
    answer = house.do(Enrol(now_ms=0, pid=PID, group_id=group))
    assert isinstance(answer, Enrolled)
    work = ProducerInstall(group, PID, answer.epoch, answer.order)
    house.tell(work)
    return work


def withdraw(house: House, group: GroupId) -> WithdrawProducers | None:
    """The partition is asked; what is to be reported."""
    report = house.tell(ProducerWithdrawal(group, [PID], house.index))
    assert report is None or isinstance(report, WithdrawProducers)
    return report


def forget_name(house: House, after_ms: int = NAME_TTL_MS) -> bool:
    """Whether the name is forgotten by then."""
    house.now_ms += after_ms
    house.do(ForgetNames(now_ms=house.now_ms, names=["w", "never there"]))
    return house.machine.registry.find("w") is None


def test_an_enrolment_stays_as_long_as_the_partition_knows_the_producer() -> None:
    house, group = enrolled_house()
    assert withdraw(house, group) is None
    assert not forget_name(house, 1000 * NAME_TTL_MS)
    assert house.machine.registry.enrolments.groups(PID) == [group]


def test_081_a_forgotten_name_begins_anew_and_its_zombie_is_never_introduced_again() -> None:
    house, group = enrolled_house()
    house.partition(group).producers.make_room(0)
    report = withdraw(house, group)
    assert report is not None
    house.do(report)
    assert house.machine.registry.enrolments.groups(PID) == []
    assert not forget_name(house, NAME_TTL_MS - 1), "its time runs from when the partition was known to have forgotten"
    house.fail_over()
    assert forget_name(house, 1)
    assert house.append(None, 0, Stamp(PID, 0, 0)) == NotEnrolled(PID)
    assert enrol(house, PID, group) == InvalidProducerIdMapping()
    assert house.init("w", pair=(PID, 0)) == producer(PID + 2, 0), "row 5: its former producer gets an id of its own"
    assert enrol(house, PID, group) == InvalidProducerIdMapping()


@pytest.mark.parametrize("use", ["init", "enrol"])
def test_a_producer_name_in_use_is_not_forgotten(use: str) -> None:
    house = House()
    group = group_id(house.topic(), 0)
    house.init("w")
    house.now_ms += NAME_TTL_MS - 1
    house.tick(house.now_ms)
    house.init("w") if use == "init" else introduce(house, group)
    assert not forget_name(house, NAME_TTL_MS - 1)


def test_a_name_under_which_a_session_holds_a_grant_stays_until_it_ends() -> None:
    house = House()
    house.topic()
    house.open("s", ttl_ms=300_000)
    house.init("p")
    grant = house.granted("s")
    house.now_ms += NAME_TTL_MS
    house.term += 1  # everybody's time begins again
    house.do(ForgetNames(now_ms=house.now_ms, names=["p"]))
    assert house.machine.registry.find("p") is not None
    house.release("s", grant.grant_id)
    house.do(ForgetNames(now_ms=house.now_ms, names=["p"]))
    assert house.machine.registry.find("p") is None


@pytest.mark.parametrize("restored", [False, True])
def test_a_withdrawal_ends_no_enrolment_that_was_decided_after_the_question(restored: bool) -> None:
    house, group = enrolled_house()
    house.partition(group).producers.make_room(0)
    report = withdraw(house, group)
    assert report is not None
    introduce(house, group)
    if restored:
        house.fail_over()
    house.do(report)
    assert house.machine.registry.enrolments.groups(PID) == [group]
    house.partition(group).producers.make_room(0)
    later = withdraw(house, group)
    house.init("w")
    assert later is not None
    house.settle()  # the partition knows the new epoch, and owes nothing
    house.do(later)
    assert house.machine.registry.enrolments.groups(PID) == [group], "raising its epoch made it known there"


def test_an_enrolment_with_an_owed_install_is_not_withdrawn() -> None:
    house, group = enrolled_house()
    house.partition(group).producers.make_room(0)
    house.init("w")
    report = withdraw(house, group)
    assert report is not None
    house.do(report)
    assert house.machine.registry.enrolments.groups(PID) == [group]
    assert house.machine.registry.enrolments.settled_on(group, [PID]) == []


def test_an_install_in_flight_when_the_partition_was_asked_is_ignored() -> None:
    house, group = enrolled_house()
    late = introduce(house, group)
    house.partition(group).producers.make_room(0)
    report = withdraw(house, group)
    assert report is not None
    house.do(report)
    house.tell(late)
    assert house.append(None, 0, Stamp(PID, 0, 0)) == NotEnrolled(PID)
    introduce(house, group)
    assert isinstance(house.append(None, 0, Stamp(PID, 0, 0)), Appended), "who asks again is taken"

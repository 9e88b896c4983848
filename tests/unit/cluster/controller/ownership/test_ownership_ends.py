"""How grants end, what is known of it when, and what their tickets answer (SEMANTICS 5.1, 5.3).

Numbers in names are those of SEMANTICS 11.
"""

import pytest

from stockade.cluster.controller.commands import (
    FenceRef,
    Freed,
    GrantState,
    Owned,
    RaiseFeatureLevel,
    SessionEnded,
)
from stockade.cluster.controller.ownership.grants import ENDED_PER_SESSION_MAX
from stockade.cluster.controller.ownership.slots import DEPARTED_MAX
from stockade.cluster.controller.topology.catalog import group_id
from stockade.partition.errors import InconsistentTopicId, NotFound, ProducerFenced, UnknownSession

from ...driver import House, house


@pytest.mark.parametrize("late", ["close", "release", "expire"])
def test_022_the_late_end_of_the_evicted_one_leaves_the_new_holder_alone(late: str) -> None:
    driver = house(sessions="b")
    driver.open("a", ttl_ms=2_000)
    victim = driver.granted("a")
    driver.settle()
    winner = driver.granted("b", mode="ExclusiveWithFencing")
    if late == "close":
        driver.close("a")
    elif late == "release":
        driver.release("a", victim.grant_id)
    else:
        driver.tick(2_000)
    driver.settle()
    assert driver.holders() == ["b", None]
    assert driver.may_write(winner, 0)


def test_118_after_a_release_both_tokens_are_dead_and_both_epochs_kept() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    driver.settle()
    assert driver.may_write(grant, 0)
    assert driver.may_write(grant, 1)
    driver.release("a", grant.grant_id)
    driver.settle()
    for partition in (0, 1):
        assert driver.append(grant, partition) == ProducerFenced(current_epoch=1, reason="slot_free")
        assert driver.partition(group_id(grant.topic_id, partition)).topic_epoch == 1
    assert driver.epochs() == [1, 1]


def test_releasing_a_grant_of_another_session_is_refused_and_an_unknown_one_is_fine() -> None:
    driver = house()
    grant = driver.granted("a")
    assert driver.release("b", grant.grant_id) == ProducerFenced(reason="not_holder", current_epoch=1)
    assert driver.release("nobody", grant.grant_id) == UnknownSession()
    assert driver.holders() == ["a", None]
    assert driver.release("b", "g-1-999") == Freed([])


def test_a_release_is_over_when_every_slot_is_cleared_and_its_repetition_says_so_too() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    driver.settle()
    freed = driver.release("a", grant.grant_id)
    assert isinstance(freed, Freed)
    assert [fence.group_id for fence in freed.fences] == [group_id(grant.topic_id, p) for p in (0, 1)]
    assert driver.release("a", grant.grant_id) == freed
    assert driver.close("a") == freed, "closing waits for what was released before"
    assert not any(driver.machine.is_over(fence) for fence in freed.fences)
    driver.settle()
    assert all(driver.machine.is_over(fence) for fence in freed.fences)
    assert driver.release("b", grant.grant_id) == Freed([])


def test_a_release_waits_for_every_ended_grant_that_a_partition_may_still_have() -> None:
    driver = house()
    known = driver.granted("a")
    driver.settle()
    passed = []

    def waits(session: str, grant: GrantState) -> bool:
        freed = driver.release(session, grant.grant_id)
        assert isinstance(freed, Freed)
        return any(not driver.machine.is_over(fence) for fence in freed.fences)

    for count in range(DEPARTED_MAX + 2):
        passed.append(driver.granted("b", mode="ExclusiveWithFencing"))
        driver.release("b", passed[-1].grant_id)
        assert all(waits("b", grant) for grant in passed), count
        assert waits("a", known)
    driver.fail_over()
    assert waits("a", known)
    assert driver.may_write(known, 0), "which is why it must wait"
    driver.settle()
    assert driver.release("a", known.grant_id) == Freed([])


def with_many_departures(level: int = 2) -> tuple[House, GrantState]:
    """Partition 0 has the grant of session b, and its report was lost. More grants than are remembered came since."""
    driver = house(sessions="abcd")
    if level == 2:
        driver.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["n1", "n2", "n3"]))
    driver.granted("a")
    grant = driver.granted("b", mode="ExclusiveWithFencing")
    driver.tell(next(driver.machine.work()))
    for number in range(DEPARTED_MAX + 1):
        driver.granted("cd"[number % 2], mode="ExclusiveWithFencing")
    return driver, grant


def elsewhere(driver: House, session: str) -> GrantState:
    """A grant of the session on topic u."""
    grant = driver.acquire(session, topic="u")
    assert isinstance(grant, GrantState)
    return grant


def settle_elsewhere(driver: House) -> None:
    """All partitions but those of topic t are told."""
    topic = driver.machine.catalog.find("t", None)
    for work in [each for each in driver.machine.work() if each.group_id not in topic.groups()]:
        report = driver.tell(work)
        assert report is not None
        driver.do(report)


@pytest.mark.parametrize("end", ["close", "close after others", "fence", "release", "sever"])
def test_the_end_of_a_session_waits_for_a_partition_that_may_still_accept_one_of_its_many_ended_grants(
    end: str,
) -> None:
    driver, grant = with_many_departures()
    if end == "close after others":
        driver.topic("u")
        for _ in range(ENDED_PER_SESSION_MAX):
            driver.release("b", elsewhere(driver, "b").grant_id)
        settle_elsewhere(driver)
    if end == "sever":
        driver.own("b", ("x", 1))

    def freed() -> list[FenceRef]:
        match end:
            case "release":
                answer = driver.release("b", grant.grant_id)
            case "sever":
                answer = driver.own("a", ("x", 2))
            case "fence":
                answer = driver.fence_session("b")
            case _:
                answer = driver.close("b")
        if isinstance(answer, NotFound):
            return driver.machine.freed("b").fences
        assert isinstance(answer, Freed | Owned | SessionEnded)
        return answer.fences

    [fence] = fences = freed()
    assert fence.group_id == group_id(grant.topic_id, 0)
    assert driver.may_write(grant, 0), "which is why it must wait"
    assert freed() == fences, "and so does its repetition"
    driver.fail_over()
    assert freed() == fences
    driver.settle()
    assert not driver.may_write(grant, 0)
    assert driver.machine.is_over(fence)
    assert freed() == []


def test_the_end_of_another_session_waits_for_none_of_the_many_ended_grants() -> None:
    driver, _ = with_many_departures()
    driver.open("e")
    other = driver.topic("u")
    grant = elsewhere(driver, "e")
    settle_elsewhere(driver)
    released = driver.release("e", grant.grant_id)
    assert isinstance(released, Freed)
    assert [fence.group_id for fence in released.fences] == [group_id(other, 0)]
    settle_elsewhere(driver)
    assert driver.release("e", grant.grant_id) == Freed([])
    assert driver.close("e") == Freed([])


def test_at_level_1_the_end_of_a_session_waits_only_for_remembered_grants_as_older_software_does() -> None:
    driver, grant = with_many_departures(level=1)
    assert driver.close("b") == Freed([])
    driver.settle()
    assert not driver.may_write(grant, 0)


def test_a_release_is_over_also_when_a_successor_took_the_slot_or_the_topic_went() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    freed = driver.release("a", grant.grant_id)
    assert isinstance(freed, Freed)
    driver.granted("b", [0])
    driver.settle()
    assert [driver.machine.is_over(fence) for fence in freed.fences] == [True, True]
    freed = driver.close("b")
    assert isinstance(freed, Freed)
    driver.delete()
    assert [driver.machine.is_over(fence) for fence in freed.fences] == [True]
    assert list(driver.machine.work()) == []


def test_a_grant_is_in_force_when_its_last_partition_has_it() -> None:
    driver = house()
    grant = driver.granted("a", [0, 1])
    for expected in (False, False):
        assert driver.machine.slots.is_in_force(grant.grant_id) is expected
        work = next(driver.machine.work())
        report = driver.tell(work)
        assert report is not None
        driver.do(report)
        driver.do(report)
    assert driver.machine.slots.is_in_force(grant.grant_id) is True
    driver.release("a", grant.grant_id)
    assert driver.machine.slots.is_in_force(grant.grant_id) is None


def test_the_late_report_of_an_earlier_install_puts_no_newer_grant_in_force() -> None:
    """Its partition still takes the writes of the one before."""
    driver = house(1)
    first = driver.granted("a")
    report = driver.tell(next(driver.machine.work()))
    assert report is not None
    second = driver.granted("b", mode="ExclusiveWithFencing")
    driver.do(report)
    assert driver.machine.slots.is_in_force(second.grant_id) is False and driver.may_write(first, 0)
    driver.settle()
    assert driver.machine.slots.is_in_force(second.grant_id) is True and not driver.may_write(first, 0)


def test_the_late_report_of_an_install_ends_no_release() -> None:
    """The release would be answered, and the partition never told: the token would stay good."""
    driver = house(1)
    grant = driver.granted("a")
    report = driver.tell(next(driver.machine.work()))
    assert report is not None
    freed = driver.release("a", grant.grant_id)
    assert isinstance(freed, Freed)
    driver.do(report)
    assert driver.release("a", grant.grant_id) == freed and driver.may_write(grant, 0)
    assert [driver.machine.is_over(fence) for fence in freed.fences] == [False]
    driver.settle()
    assert [driver.machine.is_over(fence) for fence in freed.fences] == [True]
    assert driver.release("a", grant.grant_id) == Freed([], []) and not driver.may_write(grant, 0)


def test_a_ticket_answers_its_grant_while_that_lives_and_fenced_after() -> None:
    driver = house()
    grant = driver.granted("a")
    assert driver.machine.ticket(grant.ticket_id, "a") == grant
    with pytest.raises(ProducerFenced) as refusal:
        driver.machine.ticket(grant.ticket_id, "b")
    assert refusal.value == ProducerFenced(reason="not_holder", current_epoch=1)
    driver.granted("b", mode="ExclusiveWithFencing")
    with pytest.raises(ProducerFenced) as refusal:
        driver.machine.ticket(grant.ticket_id, "a")
    assert refusal.value == ProducerFenced(reason="evicted", current_epoch=2)
    for ticket_id in (grant.ticket_id, "t-1-999", grant.grant_id, "", "x"):
        with pytest.raises(NotFound):
            driver.machine.ticket(ticket_id, "c")
    with pytest.raises(UnknownSession):
        driver.machine.ticket(grant.ticket_id, "nobody")


def test_the_end_of_a_ticket_says_whether_its_grant_was_ever_made() -> None:
    """A grant may have evicted others and been in force; a ticket that left the queue without one did nothing."""
    driver = house(sessions="abcd")
    granted, promoted = driver.granted("a"), driver.waiting("b")
    driver.release("a", granted.grant_id)
    driver.granted("c", mode="ExclusiveWithFencing")
    waited = driver.waiting("d")
    driver.granted("a", mode="ExclusiveWithFencing")
    driver.fail_over()
    ends = {}
    for session, ticket_id in (("a", granted.ticket_id), ("b", promoted.ticket_id), ("d", waited.ticket_id)):
        with pytest.raises(ProducerFenced) as refusal:
            driver.machine.ticket(ticket_id, session)
        ends[session] = refusal.value.no_side_effects
    assert ends == {"a": False, "b": False, "d": True}


def test_tickets_of_ended_grants_are_remembered_up_to_a_bound() -> None:
    driver = house()
    tickets = []
    for _ in range(ENDED_PER_SESSION_MAX + 1):
        grant = driver.granted("a")
        tickets.append(grant.ticket_id)
        driver.release("a", grant.grant_id)
    with pytest.raises(NotFound):
        driver.machine.ticket(tickets[0], "a")
    for ticket_id in tickets[1:]:
        with pytest.raises(ProducerFenced) as refusal:
            driver.machine.ticket(ticket_id, "a")
        assert refusal.value.fields["reason"] == "slot_free"


def test_an_expired_session_holds_nothing() -> None:
    driver = house(sessions="b")
    driver.open("a", ttl_ms=2_000)
    driver.granted("a", [0, 1])
    driver.tick(2_000)
    assert driver.holders() == [None, None]
    assert driver.granted("b", [0, 1]).epoch == 2


def test_011_a_deleted_topic_takes_its_grants_along_and_its_successor_starts_anew() -> None:
    driver = house()
    old = driver.granted("a", [0, 1])
    driver.settle()
    driver.delete()
    assert driver.grant(old.grant_id) is None
    new_id = driver.topic()
    assert driver.acquire("a", [0], topic_id=old.topic_id) == InconsistentTopicId(topic_id=new_id)
    assert driver.granted("a", [0, 1]).epoch == 1
    driver.settle()
    assert driver.append(old, 0) == InconsistentTopicId(topic_id=new_id)

"""Sharing, waiting and promotion (SEMANTICS 6.1, 6.3). Numbers in names are those of SEMANTICS 11."""

import pytest

from stockade.cluster.controller.commands import Acquire, GrantState, OpenSession, RaiseFeatureLevel, TicketState
from stockade.cluster.controller.ownership.grants import DEADLINES_SPARE, TICKETS_PER_TOPIC_MAX
from stockade.cluster.controller.principals import DeletePrincipal, PrincipalPut, PutPrincipal
from stockade.cluster.controller.state import decode
from stockade.cluster.model import By
from stockade.partition.errors import (
    HoldAndWait,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    ThrottlingQuotaExceeded,
    WaitQueueFull,
)

from ...driver import EXCLUSIVE_MODES, MODES, TTL_MS, House, busy, house


def waiters(driver: House) -> list[str]:
    topic = driver.machine.catalog.topics()[0]
    return [ticket.session for ticket in driver.machine.slots.queue.of_topic(topic.topic_id)]


def fenced(driver: House, session: str, ticket_id: str) -> str:
    """Why the session's ticket or grant has ended."""
    with pytest.raises(ProducerFenced) as refusal:
        driver.machine.ticket(ticket_id, session)
    reason = refusal.value.fields["reason"]
    assert isinstance(reason, str)
    return reason


def test_002_no_session_shares_with_an_exclusive_holder() -> None:
    driver = house()
    driver.granted("a")
    assert driver.acquire("b", mode="Shared") == busy(epoch=1)


def test_005_fencing_ends_the_holder_and_the_tickets_that_wait_for_the_set() -> None:
    driver = house()
    holder = driver.granted("a")
    ticket = driver.waiting("b")
    driver.settle()
    winner = driver.granted("c", mode="ExclusiveWithFencing")
    assert fenced(driver, "a", holder.ticket_id) == fenced(driver, "b", ticket.ticket_id) == "evicted"
    assert (driver.holders()[0], waiters(driver)) == ("c", [])
    driver.settle()
    assert isinstance(driver.append(holder, 0), ProducerFenced)
    assert driver.may_write(winner, 0)


def test_006_a_waiting_session_is_granted_when_the_holder_closes_and_writes() -> None:
    driver = house()
    driver.granted("a")
    ticket = driver.waiting("b")
    driver.settle()
    driver.close("a")
    driver.settle()
    granted = driver.machine.ticket(ticket.ticket_id, "b")
    assert isinstance(granted, GrantState)
    assert (granted.mode, granted.epoch) == ("WaitForExclusive", 2)
    assert driver.may_write(granted, 0)


def test_008_an_exclusive_acquire_evicts_no_shared_grant() -> None:
    driver = house()
    driver.granted("a", mode="Shared")
    assert driver.acquire("b") == ProducerBusy(
        reason="shared_present", holder_mode="Shared", current_epoch=0, queue_len=0
    )


def test_shared_grants_have_tokens_of_their_own() -> None:
    driver = house()
    driver.granted("c")
    driver.close("c")
    grants = [driver.granted(session, [0, 1], "Shared") for session in "ab"]
    assert [(grant.epoch, grant.epochs) for grant in grants] == [(None, [1, 0])] * 2, "no epoch is raised"
    driver.settle()
    assert all(driver.may_write(grant, partition) for grant in grants for partition in (0, 1))
    assert driver.may_write(None, 0), "a shared slot is open to all"
    driver.release("a", grants[0].grant_id)
    driver.settle()
    assert [driver.may_write(grant, 1) for grant in grants] == [False, True]


def test_012_waiters_are_granted_one_after_the_other() -> None:
    driver = house()
    driver.granted("a")
    assert [driver.waiting(session).position for session in "bc"] == [0, 1]
    driver.close("a")
    assert (driver.holders()[0], waiters(driver)) == ("b", ["c"])
    driver.close("b")
    assert (driver.holders()[0], waiters(driver)) == ("c", [])


@pytest.mark.parametrize("mode", ["Exclusive", "Shared"])
def test_014_a_refused_acquire_leaves_nothing_behind(mode: str) -> None:
    driver = house()
    driver.granted("a")
    driver.settle()
    before = decode(driver.machine.capture().state)
    assert isinstance(driver.acquire("b", mode=mode), ProducerBusy)
    after = decode(driver.machine.capture().state)
    assert (before.ownership, before.sessions) == (after.ownership, after.sessions)
    driver.close("b")
    driver.close("c")
    assert decode(driver.machine.capture().state).ownership == before.ownership
    assert driver.machine.next_deadline_ms() == TTL_MS, "of the holder alone"
    assert list(driver.machine.work()) == []


@pytest.mark.parametrize("mode", ["Exclusive", "Shared"])
def test_016_a_new_request_comes_after_the_queue(mode: str) -> None:
    """The slot of 1 is free, and the first in line cannot have it yet."""
    driver = house(sessions="abcd")
    driver.granted("a", [0])
    driver.waiting("b", [0, 1])
    assert driver.acquire("c", [1], mode) == ProducerBusy(
        reason="waiters_present", holder_mode=None, current_epoch=0, queue_len=1
    )
    assert driver.waiting("d", [1]).position == 1
    driver.close("a")
    assert driver.holders() == ["b", "b"]


def test_018_a_waiter_whose_epoch_was_passed_is_fenced_when_its_turn_comes_and_moves_no_epoch() -> None:
    driver = house(sessions="abc")
    driver.granted("a")
    ticket = driver.waiting("b", resume=1)
    topic = driver.machine.catalog.topics()[0]
    topic.epochs[0] = 9
    driver.machine.slots.grants.holders[topic.groups()[0]].epoch = 9
    driver.machines.clear()
    driver.machines.append(driver.machine)
    driver.release("a", next(iter(driver.machine.slots.grants.by_id)))
    assert fenced(driver, "b", ticket.ticket_id) == "superseded"
    assert (driver.epochs()[0], driver.holders()[0]) == (9, None)


def test_a_waiter_that_comes_back_first_resumes_its_epoch() -> None:
    driver = house()
    driver.granted("a")
    ticket = driver.waiting("b", resume=1)
    driver.close("a")
    granted = driver.machine.ticket(ticket.ticket_id, "b")
    assert isinstance(granted, GrantState)
    assert granted.epoch == 1


def test_020_a_waiter_behind_shared_grants_is_granted_when_the_last_of_them_ends() -> None:
    driver = house()
    shared = [driver.granted(session, mode="Shared") for session in "ab"]
    ticket = driver.waiting("c")
    driver.release("a", shared[0].grant_id)
    assert isinstance(driver.machine.ticket(ticket.ticket_id, "c"), TicketState)
    driver.close("b")
    assert driver.holders()[0] == "c"


@pytest.mark.parametrize("death", ["close", "expire together", "ticket ttl"])
def test_021_a_dead_waiter_is_skipped_and_the_epoch_moves_once(death: str) -> None:
    driver = house(sessions="cd")
    driver.open("a", ttl_ms=5_000)
    driver.open("b", ttl_ms=6_000 if death == "expire together" else 60_000)
    driver.granted("a")
    driver.acquire("b", mode="WaitForExclusive", ttl_ms=4_000 if death == "ticket ttl" else None)
    driver.waiting("c")
    if death == "close":
        driver.close("b")
    driver.tick(6_000)
    assert (driver.holders()[0], driver.epochs()[0], waiters(driver)) == ("c", 2, [])


def test_028_a_session_with_a_grant_may_not_wait() -> None:
    driver = house()
    grant = driver.granted("a", [0])
    driver.granted("b", [1])
    assert driver.acquire("a", [1], "WaitForExclusive") == HoldAndWait(held_grants=[grant.grant_id], ticket=None)
    assert waiters(driver) == []


def test_029_disjoint_sets_pass_a_waiter_and_touching_ones_do_not() -> None:
    driver = house(partitions=4, sessions="abxyz")
    driver.granted("a", [0])
    driver.granted("b", [1, 2, 3])
    wanted = {"x": [0, 1], "y": [1, 2], "z": [3]}
    tickets = {session: driver.waiting(session, places) for session, places in wanted.items()}
    driver.close("b")
    assert driver.holders() == ["a", None, None, "z"]
    assert waiters(driver) == ["x", "y"]
    assert isinstance(driver.machine.ticket(tickets["z"].ticket_id, "z"), GrantState)
    driver.close("a")
    assert driver.holders() == ["x", "x", None, "z"]


def test_030_a_grant_fenced_on_one_partition_frees_the_others_for_their_waiters() -> None:
    driver = house()
    driver.granted("a", [0, 1])
    driver.waiting("b", [0])
    driver.granted("c", [1], "ExclusiveWithFencing")
    assert driver.holders() == ["b", "c"]


def test_120_two_shared_holders_cannot_wait_for_each_other() -> None:
    driver = house()
    seats = {session: driver.granted(session, mode="Shared").grant_id for session in "ab"}
    for session, seat in seats.items():
        refusal = HoldAndWait(held_grants=[seat], ticket=None)
        assert driver.acquire(session, mode="WaitForExclusive") == refusal


@pytest.mark.parametrize("mode", MODES)
def test_123_a_session_with_a_ticket_is_granted_nothing_else(mode: str) -> None:
    driver = house()
    driver.granted("b", [0])
    ticket = driver.waiting("a", [0])
    assert driver.acquire("a", [1], mode) == HoldAndWait(held_grants=[], ticket=ticket.ticket_id)


@pytest.mark.parametrize("mode", EXCLUSIVE_MODES)
def test_a_sessions_own_shared_grants_end_for_its_exclusive_grant(mode: str) -> None:
    driver = house()
    seat = driver.granted("a", [0, 1], "Shared")
    driver.settle()
    grant = driver.granted("a", [0], mode)
    driver.settle()
    assert driver.may_write(grant, 0)
    assert not driver.may_write(seat, 1), "a grant ends whole"
    assert fenced(driver, "a", seat.ticket_id) == "superseded"


def test_a_repeated_acquire_answers_the_same_ticket_or_shared_grant() -> None:
    driver = house()
    seat = driver.granted("a", mode="Shared")
    assert driver.acquire("a", mode="Shared") == seat
    ticket = driver.waiting("b")
    assert driver.waiting("b") == ticket
    assert isinstance(driver.acquire("b", mode="ExclusiveWithFencing"), HoldAndWait)


def test_a_ticket_is_cancelled_by_its_session_alone_and_lets_the_next_one_through() -> None:
    driver = house(sessions="abcd")
    driver.granted("a", [0])
    ticket = driver.waiting("b", [0, 1])
    driver.waiting("c", [1])
    assert driver.cancel("c", ticket.ticket_id) == ProducerFenced(reason="not_holder", current_epoch=1)
    answer = driver.cancel("b", ticket.ticket_id)
    assert answer == TicketState(ticket.ticket_id, "b", "t", [0, 1], None)
    assert driver.holders() == ["a", "c"]
    assert isinstance(driver.cancel("b", ticket.ticket_id), TicketState)
    assert isinstance(driver.cancel("d", "t-1-99"), TicketState), "unknown is cancelled"
    found = driver.machine.ticket(ticket.ticket_id, "b")
    assert isinstance(found, TicketState)
    assert found.position is None


def test_a_cancel_that_comes_after_the_grant_answers_the_grant() -> None:
    driver = house()
    driver.granted("a")
    ticket = driver.waiting("b")
    driver.close("a")
    answer = driver.cancel("b", ticket.ticket_id)
    assert isinstance(answer, GrantState)
    assert driver.holders()[0] == "b"


def test_a_ticket_leaves_the_queue_at_its_deadline() -> None:
    driver = house()
    driver.granted("a")
    answer = driver.acquire("b", mode="WaitForExclusive", ttl_ms=2_000)
    assert isinstance(answer, TicketState)
    assert driver.machine.next_deadline_ms() == 2_000
    driver.tick(1_999)
    assert waiters(driver) == ["b"]
    driver.tick(2_000)
    found = driver.machine.ticket(answer.ticket_id, "b")
    assert (found, waiters(driver)) == (TicketState(answer.ticket_id, "b", "t", [0], None), [])


def test_the_heap_of_deadlines_drops_tickets_that_left_and_still_expires_the_others() -> None:
    driver = house()
    driver.granted("a")
    driver.acquire("b", mode="WaitForExclusive", ttl_ms=TTL_MS - 1)
    queue = driver.machine.slots.queue
    for _ in range(3 * DEADLINES_SPARE):
        answer = driver.acquire("c", mode="WaitForExclusive", ttl_ms=TTL_MS - 2)
        assert isinstance(answer, TicketState)
        driver.cancel("c", answer.ticket_id)
        assert len(queue._deadlines) <= 2 * len(queue.by_id) + DEADLINES_SPARE
    driver.tick(TTL_MS - 2)
    assert waiters(driver) == ["b"]
    driver.tick(TTL_MS - 1)
    assert waiters(driver) == []


def test_a_deleted_topic_ends_its_tickets() -> None:
    driver = house()
    driver.granted("a")
    ticket = driver.waiting("b")
    driver.delete()
    with pytest.raises(NotFound):
        driver.machine.ticket(ticket.ticket_id, "b")
    driver.topic()
    assert driver.granted("b").epoch == 1


def test_the_wait_queue_and_shared_grants_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.cluster.controller.ownership.grants.TICKETS_PER_TOPIC_MAX", 1)
    monkeypatch.setattr("stockade.cluster.controller.ownership.acquire.SHARERS_PER_PARTITION_MAX", 1)
    assert TICKETS_PER_TOPIC_MAX == 1_000
    driver = house(sessions="abcd")
    driver.granted("a", [0])
    driver.waiting("b", [0])
    assert driver.acquire("c", [0], "WaitForExclusive") == WaitQueueFull(retry_after_ms=1_000)
    driver.granted("c", [1], "Shared")
    assert driver.acquire("d", [1], "Shared") == ThrottlingQuotaExceeded(retry_after_ms=1_000)


def put(driver: House, principal: str, *rights: str) -> None:
    command = PutPrincipal(now_ms=driver.now_ms, name=principal, rights=list(rights), certificates=[f"CN:{principal}"])
    assert isinstance(driver.do(command), PrincipalPut)


def with_waiter(*, level: int = 2) -> tuple[House, TicketState]:
    """Session "a" has partition 0 of topic t; "p1", of the principal p, waits for it, and so does "c" behind it."""
    driver = house()
    if level == 2:
        driver.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["n1", "n2", "n3"]))
    put(driver, "p", "acquire topic:t", "acquire topic:u")
    by = By("p")
    driver.do(OpenSession(now_ms=driver.now_ms, by=by, session="p1", client_id="p1", ttl_ms=TTL_MS))
    driver.granted("a")
    wanted = Acquire(
        now_ms=driver.now_ms, by=by, session="p1", topic="t", partitions=[0], mode="WaitForExclusive", producer_name="p"
    )
    ticket = driver.do(wanted)
    assert isinstance(ticket, TicketState)
    driver.waiting("c")
    return driver, ticket


def test_the_tickets_of_a_principal_that_loses_the_right_to_acquire_leave_the_queue() -> None:
    driver, ticket = with_waiter()
    put(driver, "p", "acquire topic:t*")
    assert waiters(driver) == ["p1", "c"], "it may still acquire"
    put(driver, "p", "acquire topic:u", "read topic:t")
    assert waiters(driver) == ["c"]
    left = driver.machine.ticket(ticket.ticket_id, "p1", "p")
    assert isinstance(left, TicketState)
    assert left.position is None
    driver.fail_over()
    driver.close("a")
    assert driver.holders()[0] == "c"


def test_the_tickets_of_a_deleted_principal_leave_the_queue() -> None:
    driver, _ = with_waiter()
    driver.do(DeletePrincipal(now_ms=driver.now_ms, name="p"))
    assert waiters(driver) == ["c"]


def test_at_level_1_the_tickets_of_a_principal_stay_queued_as_in_older_software() -> None:
    driver, _ = with_waiter(level=1)
    driver.do(DeletePrincipal(now_ms=driver.now_ms, name="p"))
    assert waiters(driver) == ["p1", "c"]


@pytest.mark.parametrize(("level", "left"), [(1, ["b"]), (2, [])])
def test_a_ticket_that_would_resume_an_epoch_fenced_by_an_operator_leaves_the_queue_although_no_grant_ends(
    level: int, left: list[str]
) -> None:
    """Else it waits in vain, and keeps others from what is free."""
    driver = house()
    if level == 2:
        driver.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["n1", "n2", "n3"]))
    held = driver.granted("a", [0])
    driver.fence([1])
    assert driver.epochs() == [1, 1]
    ticket = driver.waiting("b", [0, 1], resume=1)
    driver.fence([1])
    assert waiters(driver) == left
    assert isinstance(driver.acquire("c", [1]), ProducerBusy if left else GrantState)
    driver.release("a", held.grant_id)
    assert fenced(driver, "b", ticket.ticket_id) == "superseded"

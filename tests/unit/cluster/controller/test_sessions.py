"""Sessions live on the lease clock that commands carry, on every replica alike (SEMANTICS 5.1, 8)."""

from pathlib import Path

import pytest

from stockade.cluster.controller import sessions
from stockade.cluster.controller.commands import (
    FenceRef,
    Freed,
    RenewSession,
    RenewSessions,
    Result,
    SessionEnded,
    SessionState,
    Tick,
    TicketState,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.sessions import EXPIRED_MEMORY_MS, TTL_MS_MAX, TTL_MS_MIN
from stockade.partition.errors import (
    InvalidRequest,
    NotFound,
    PlanChanged,
    SessionExpired,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownSession,
)

from ..driver import TTL_MS, Driver


def renew(driver: Driver, session: str) -> Result | StockadeError:
    return driver.do(RenewSession(now_ms=driver.now_ms, session=session))


@pytest.mark.parametrize(
    ("wanted_ms", "given_ms"),
    [
        (1, TTL_MS_MIN),
        (TTL_MS_MIN, TTL_MS_MIN),
        (5_000, 5_000),
        (TTL_MS_MAX, TTL_MS_MAX),
        (2**62, TTL_MS_MAX),
    ],
)
def test_the_ttl_is_moved_into_its_range(wanted_ms: int, given_ms: int) -> None:
    driver = Driver()
    driver.tick(7)
    assert driver.open("s", wanted_ms) == SessionState("s", "c-s", given_ms, 7 + given_ms)


def test_a_session_lives_up_to_its_deadline_and_no_longer() -> None:
    driver = Driver()
    driver.open("s")
    driver.tick(TTL_MS - 1)
    assert driver.machine.sessions.find("s").state().deadline_ms == TTL_MS
    driver.tick(TTL_MS)
    with pytest.raises(SessionExpired):
        driver.machine.sessions.find("s").state()


def test_092_a_renewal_before_the_expiry_wins_and_one_after_it_revives_nothing() -> None:
    driver = Driver(replicas=3)
    driver.open("s")
    driver.now_ms = TTL_MS - 1
    assert renew(driver, "s") == SessionState("s", "c-s", TTL_MS, 2 * TTL_MS - 1)
    driver.tick(2 * TTL_MS - 2)
    driver.machine.sessions.find("s").state()
    driver.now_ms = 2 * TTL_MS - 1
    assert renew(driver, "s") == SessionExpired(), "the command itself brings the time that ends the session"
    assert renew(driver, "s") == SessionExpired()
    assert len({machine.capture().state for machine in driver.machines}) == 1


def test_092_replicas_whose_leaders_had_skewed_clocks_hold_equal_state() -> None:
    """The clock that counts is in the log: a replica that applies it all at once agrees with one that followed."""
    driver = Driver(replicas=3)
    driver.topic(partitions=4)
    for number, now_ms in enumerate([5, 900, 40, 1_500, 1_200, 2_600]):
        driver.now_ms = now_ms
        driver.term += number % 2
        driver.open(f"s{number}", ttl_ms=TTL_MS_MIN)
        driver.acquire(f"s{number}", [number % 4], "ExclusiveWithFencing")
    assert driver.machine.lease_clock_ms == 2_600
    late = Driver()
    for index, (term, data) in enumerate(driver.log, start=1):
        late.machine.apply(index, term, data)
    assert {machine.capture().state for machine in driver.machines} == {late.machine.capture().state}


def test_093_a_time_without_a_leader_costs_no_holder_its_grant() -> None:
    driver = Driver()
    driver.topic()
    driver.open("s")
    grant = driver.granted("s")
    driver.term = 2
    driver.tick(60_000)  # the clock of a leader that counted on while no session could be renewed
    assert driver.machine.sessions.find("s").state().deadline_ms == 60_000 + TTL_MS
    assert driver.grant(grant.grant_id) is not None
    driver.tick(60_000 + TTL_MS)
    assert driver.grant(grant.grant_id) is None, "the second command of the term re-arms nothing"


def test_the_first_command_of_a_term_rearms_whatever_it_is() -> None:
    driver = Driver()
    driver.open("s")
    driver.open("r", ttl_ms=TTL_MS_MIN)
    driver.term, driver.now_ms = 5, TTL_MS
    driver.open("q")
    assert [driver.machine.sessions.find(s).state().deadline_ms for s in "srq"] == [
        2 * TTL_MS,
        TTL_MS + TTL_MS_MIN,
        2 * TTL_MS,
    ]


def test_057_a_command_stamped_earlier_than_the_clock_is_accepted_and_turns_nothing_back() -> None:
    driver = Driver()
    driver.tick(5_000)
    driver.now_ms = 10
    assert driver.open("s") == SessionState("s", "c-s", TTL_MS, 5_000 + TTL_MS)
    assert driver.machine.lease_clock_ms == 5_000


def test_due_sessions_expire_in_the_order_of_deadline_and_id(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    order: list[str] = []
    end_session = driver.machine.slots.end_session

    def ended(session: str, ends: str, level: int) -> list[FenceRef]:
        order.append(session)
        return end_session(session, ends, level)

    monkeypatch.setattr(driver.machine.slots, "end_session", ended)
    for session, ttl_ms in (("d", 3_000), ("c", 2_000), ("b", 2_000), ("a", 4_000), ("e", 1_500)):
        driver.open(session, ttl_ms)
    driver.tick(1_000)
    renew(driver, "e")  # due at 2,500 now, after b and c
    driver.tick(9_000)
    assert order == ["b", "c", "e", "d", "a"]


@pytest.mark.parametrize("earlier", ["renewal", "term"])
def test_a_session_expires_at_its_deadline_although_the_heap_has_a_later_one(earlier: str) -> None:
    driver = Driver(replicas=2)
    driver.open("s")
    driver.do(RenewSessions(now_ms=0, deadlines_ms=[("s", 5 * TTL_MS)]))
    driver.tick(TTL_MS)
    if earlier == "renewal":
        assert renew(driver, "s") == SessionState("s", "c-s", TTL_MS, 2 * TTL_MS)
    else:
        driver.tick(TTL_MS, term=2)
    assert driver.machine.next_deadline_ms() == 2 * TTL_MS
    restored = ControllerMachine()
    restored.restore(Path("unused"), driver.machine.capture().state, [])
    driver.machines[1] = restored
    driver.tick(2 * TTL_MS)
    assert [machine.sessions.count for machine in driver.machines] == [0, 0]
    assert driver.machine.capture().state == restored.capture().state


def test_close_is_idempotent_and_an_unknown_session_is_closed() -> None:
    driver = Driver()
    driver.open("s")
    assert driver.close("s") == Freed([])
    assert driver.close("s") == Freed([])
    assert driver.close("never") == Freed([])
    assert renew(driver, "s") == UnknownSession()


def test_a_session_ended_by_an_operator_is_session_expired() -> None:
    driver = Driver(replicas=3)
    driver.topic(partitions=2)
    driver.open("s")
    driver.open("heir")
    held = driver.granted("s", [0, 1])
    driver.own("s", ("x", None))
    waiting = driver.acquire("heir", [0], "WaitForExclusive")
    assert isinstance(waiting, TicketState)
    ended = driver.fence_session("s", reason="hangs")
    assert isinstance(ended, SessionEnded)
    assert (ended.client_id, ended.grants, ended.resources) == ("c-s", [held.grant_id], 1)
    assert [ref.group_id for ref in ended.fences] == driver.machine.catalog.topics()[0].groups()
    assert renew(driver, "s") == SessionExpired(), "the id is never that of another session"
    assert driver.open("s") == SessionExpired()
    assert driver.holders() == ["heir", None], "the first in line is next"
    assert driver.machine.resources.find("g", "x").owner is None
    assert len({machine.capture().state for machine in driver.machines}) == 1


def test_a_session_fence_with_an_outdated_condition_ends_no_session() -> None:
    driver = Driver()
    driver.topic(partitions=2)
    driver.open("s")
    held = driver.granted("s", [0])
    driver.own("s", ("x", None))
    assert driver.fence_session("never") == NotFound(what="session")
    for grants in ([], [held.grant_id, "g-9-9"]):
        assert isinstance(driver.fence_session("s", if_grants=grants), PlanChanged)
    assert isinstance(driver.fence_session("s", if_resources=0), PlanChanged)
    assert isinstance(driver.fence_session("s", reason="x" * 201), InvalidRequest)
    assert isinstance(renew(driver, "s"), SessionState)
    assert driver.holders() == ["s", None]
    done = driver.fence_session("s", reason="x" * 200, if_grants=[held.grant_id], if_resources=1)
    assert isinstance(done, SessionEnded)
    assert driver.fence_session("s") == NotFound(what="session")


def test_a_repeated_open_is_one_session_and_revives_no_expired_one() -> None:
    driver = Driver()
    first = driver.open("s")
    driver.tick(1)
    assert driver.open("s") == first
    driver.tick(TTL_MS)
    assert driver.open("s") == SessionExpired()


def test_an_expired_id_is_remembered_for_an_hour() -> None:
    driver = Driver()
    driver.open("s")
    driver.tick(TTL_MS)
    driver.tick(TTL_MS + EXPIRED_MEMORY_MS - 1)
    driver.open("r", TTL_MS_MIN)
    assert renew(driver, "s") == SessionExpired()
    driver.tick(TTL_MS + EXPIRED_MEMORY_MS - 1 + TTL_MS_MIN)
    assert renew(driver, "s") == UnknownSession()
    assert renew(driver, "r") == SessionExpired()


def test_beyond_the_bound_the_oldest_expired_id_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "EXPIRED_MAX", 2)
    driver = Driver()
    for number in range(3):
        driver.open(f"s{number}", TTL_MS_MIN + number)
    driver.tick(TTL_MS)
    assert [renew(driver, f"s{n}") for n in range(3)] == [UnknownSession(), SessionExpired(), SessionExpired()]


def test_sessions_are_bounded_and_a_closed_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    driver = Driver()
    driver.open("a")
    driver.open("b")
    assert driver.open("c") == ThrottlingQuotaExceeded(retry_after_ms=1000)
    driver.close("a")
    assert isinstance(driver.open("c"), SessionState)


def test_the_next_deadline_says_when_a_tick_has_something_to_do() -> None:
    driver = Driver()
    assert driver.machine.next_deadline_ms() is None
    driver.open("a", 3_000)
    driver.open("b", 2_000)
    assert driver.machine.next_deadline_ms() == 2_000
    driver.tick(1_000)
    renew(driver, "b")
    driver.do(Tick(now_ms=2_000))
    assert driver.machine.next_deadline_ms() == 3_000
    driver.tick(3_000)
    assert driver.machine.next_deadline_ms() is None

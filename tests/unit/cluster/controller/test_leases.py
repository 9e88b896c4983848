"""Renewals in the leader's memory: no renewed session expires, and the log hears of renewals rarely (SEMANTICS 8)."""

import random
from collections.abc import Callable

import pytest

from stockade.cluster.controller.commands import OpenSession, RenewSession, RenewSessions, Tick, encode_command
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.sessions import AHEAD_MS, HELD_BACK_MAX, Leases
from stockade.partition.errors import SessionExpired, StockadeError, UnknownSession

TTL_MS = 10_000


class Leader:
    """A leader and its machine; ``clock_ms`` is its lease clock."""

    def __init__(self) -> None:
        self.machine = ControllerMachine()
        self.leases = Leases(lambda: self.machine.sessions)
        self.clock_ms = 0
        self.term = 1
        self.commands = 0

    def do(self, command: Tick | OpenSession | RenewSession | RenewSessions) -> object:
        self.commands += 1
        return self.machine.apply(self.commands, self.term, encode_command(command))

    @property
    def stamp_ms(self) -> int:
        return self.leases.stamp(self.term, self.clock_ms)

    def open(self, session: str, ttl_ms: int = TTL_MS) -> None:
        self.do(OpenSession(now_ms=self.stamp_ms, session=session, client_id=session, ttl_ms=ttl_ms))

    def renew(self, session: str) -> int | None:
        """The new deadline, if memory was enough. Raises what the log answers."""
        found = self.leases.renew(self.term, session, self.clock_ms)
        if found is None:
            answer = self.do(RenewSession(now_ms=self.stamp_ms, session=session))
            if isinstance(answer, StockadeError):
                raise answer
            if self.leases.lags(self.term, self.clock_ms):
                deadlines_ms = [(session, self.clock_ms + TTL_MS)]
                self.do(RenewSessions(now_ms=self.stamp_ms, deadlines_ms=deadlines_ms))
        return found.deadline_ms if found is not None else None

    def look(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """As the leader does five times a second; how many renewals were written, which takes as long as ``meanwhile``
        does.
        """
        if not self.leases.has_begun(self.term):
            self.do(Tick(now_ms=self.stamp_ms))
            self.leases.begin(self.term, self.machine.lease_clock_ms)
        horizon_ms, renewals = self.leases.look_ahead(self.clock_ms)
        if renewals:
            self.do(RenewSessions(now_ms=self.stamp_ms, deadlines_ms=renewals))
        meanwhile()
        self.leases.written(renewals)
        self.leases.advance(horizon_ms)
        self.do(Tick(now_ms=self.stamp_ms))
        return len(renewals)

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 200):
            self.clock_ms += 200
            self.look()

    def lives(self, session: str) -> bool:
        return self.machine.sessions.deadline_ms(session) is not None


def leader(*sessions: str) -> Leader:
    made = Leader()
    made.look()
    for session in sessions:
        made.open(session)
    return made


def test_a_session_that_is_renewed_lives_and_is_written_down_once_a_ttl() -> None:
    it = leader("a", "b")
    written = 0
    for _ in range(300):
        it.clock_ms += 200
        it.renew("a")
        written += it.look()
    assert it.lives("a")
    assert not it.lives("b")
    assert written <= 60_000 // (TTL_MS - AHEAD_MS - 200) + 1


def test_a_leader_that_stood_still_without_a_successor_reads_the_renewals_that_wait_before_it_ends_a_session() -> None:
    """All nodes, or the leader and so many that no majority was left, were suspended: the leader goes on in its term.
    The sessions of clients that had renewed all the time ended at its first look.
    """
    it = leader("waits", "gone")
    it.pass_time(2_000)
    it.renew("waits")
    it.clock_ms += 3 * TTL_MS
    it.look()
    it.renew("waits")
    it.pass_time(TTL_MS - 1_000)
    assert it.lives("waits")
    assert not it.lives("gone")
    assert it.machine.lease_clock_ms == it.clock_ms


def test_after_a_leader_stood_still_a_renewal_has_time_to_arrive_before_it_ends_a_session() -> None:
    """The renewal waits at a node that has to connect again, or its client asks again after the second that a 503 told
    it to wait. A session of 3 s that had been renewed 1.8 s before ended at the second look, 0.2 s after the leader
    went on.
    """
    it = leader()
    it.open("asks again", 3_000)
    it.open("is gone", 3_000)
    it.pass_time(1_800)
    it.clock_ms += 20_000
    it.look()
    it.pass_time(1_600)
    it.renew("asks again")
    it.pass_time(1_000)
    assert it.lives("asks again")
    assert not it.lives("is gone")


def test_a_session_that_is_opened_after_a_long_suspension_ends_soon_after_its_client_is_gone() -> None:
    """The lease clock followed the leader's own at five times its pace, for twelve minutes after an hour."""
    it = leader()
    it.clock_ms += 3_600_000
    it.look()
    it.open("a")
    it.do(RenewSessions(now_ms=it.stamp_ms, deadlines_ms=[("a", it.clock_ms + TTL_MS)]))
    it.pass_time(HELD_BACK_MAX * 200 + TTL_MS)
    assert not it.lives("a")
    assert it.machine.lease_clock_ms == it.clock_ms


def test_no_session_expires_before_the_deadline_that_was_answered() -> None:
    """However renewals fall, by memory or by the log, however long the leader stalls in between, and its commits."""
    for seed in range(50):
        rng = random.Random(seed)
        it = leader("a", "b", "c")
        answered = dict.fromkeys("abc", TTL_MS)

        def renew_one(it: Leader = it, answered: dict[str, int] = answered, rng: random.Random = rng) -> None:
            it.clock_ms += rng.choice([50, 200, 200, 200, 4_000])
            session = rng.choice("abc")
            try:
                answered[session] = it.renew(session) or it.clock_ms + TTL_MS
            except StockadeError:
                assert it.clock_ms >= answered[session]

        for _ in range(200):
            it.clock_ms += rng.choice([50, 200, 200, 200, 4_000])
            if rng.random() < 0.4:
                renew_one()
            if rng.random() < 0.8:
                it.look(renew_one if rng.random() < 0.2 else lambda: None)
            else:
                it.do(Tick(now_ms=it.stamp_ms))
            for session, deadline_ms in answered.items():
                assert it.lives(session) or it.machine.lease_clock_ms >= deadline_ms


def test_a_stalled_leader_slows_the_lease_clock() -> None:
    it = leader("a")
    it.pass_time(1_000)
    assert it.renew("a") is not None
    it.clock_ms += 60_000
    it.do(Tick(now_ms=it.stamp_ms))
    assert it.machine.lease_clock_ms < 1_000 + AHEAD_MS
    assert it.lives("a")


def test_a_session_near_its_end_is_renewed_by_the_log() -> None:
    it = leader("a")
    it.pass_time(TTL_MS - AHEAD_MS + 200)
    assert it.renew("a") is None
    assert it.machine.sessions.find("a").state().deadline_ms == it.machine.lease_clock_ms + TTL_MS


def test_a_leader_that_has_written_nothing_in_its_term_answers_nothing_from_memory() -> None:
    it = leader("a")
    it.term = 2
    assert it.leases.renew(it.term, "a", it.clock_ms) is None
    it.look()
    assert it.leases.renew(it.term, "a", it.clock_ms) is not None


def test_the_next_leader_gives_every_session_a_full_ttl() -> None:
    it = leader("a")
    it.pass_time(8_000)
    it.renew("a")
    assert it.machine.sessions.find("a").state().deadline_ms == TTL_MS, "the log has not heard of it"
    it.term, it.leases = 2, Leases(lambda: it.machine.sessions)
    it.look()
    assert it.machine.sessions.find("a").state().deadline_ms == it.machine.lease_clock_ms + TTL_MS


def test_renewals_of_ended_sessions_are_refused_and_forgotten() -> None:
    it = leader("a", "b")
    it.renew("b")
    it.machine.sessions.close("b")
    assert it.leases.look_ahead(it.clock_ms)[1] == []
    with pytest.raises(UnknownSession):
        it.leases.renew(it.term, "b", it.clock_ms)
    it.pass_time(TTL_MS + AHEAD_MS)
    with pytest.raises(SessionExpired):
        it.leases.renew(it.term, "a", it.clock_ms)


def test_a_renewal_heard_while_older_ones_are_written_is_not_lost() -> None:
    it = leader("a")
    it.renew("a")
    it.clock_ms = TTL_MS - 2 * AHEAD_MS
    it.leases.advance(it.clock_ms + 2 * AHEAD_MS)
    it.clock_ms += AHEAD_MS + 1
    _, renewals = it.leases.look_ahead(it.clock_ms)
    assert [session for session, _ in renewals] == ["a"]
    it.leases.written([("a", renewals[0][1] - 1)])
    assert it.leases.look_ahead(it.clock_ms)[1] == renewals


def test_an_older_renewal_written_late_does_not_shorten_a_newer_deadline() -> None:
    """It was asked for and applied while the command with the older ones was on its way."""
    it = leader("a")
    it.renew("a")
    it.pass_time(TTL_MS - AHEAD_MS - 600)
    it.clock_ms = TTL_MS - AHEAD_MS // 2
    _, renewals = it.leases.look_ahead(it.clock_ms)
    assert it.renew("a") is None, "the log alone can tell"
    answered_ms = it.machine.sessions.deadline_ms("a")
    assert answered_ms is not None and renewals[0][1] < answered_ms
    it.do(RenewSessions(now_ms=it.stamp_ms, deadlines_ms=renewals))
    assert it.machine.sessions.deadline_ms("a") == answered_ms

"""Renewals of sessions that the controller's leader heard, and that are not in the log yet (SEMANTICS 8).

A session costs one line of a command a ttl, however often it is renewed: what was heard is written down only before
the deadline in the log is reached. Two bounds keep that safe. Commands are stamped below the *horizon*; no session
with a deadline below it has a renewal that only the leader knows. And a session whose deadline is near is renewed by a
command of its own. A leader that stalls therefore slows the lease clock, and ends nobody that it has heard of. What a
lost leader had heard is made good by the next one, whose first command gives everybody a full ttl.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from .commands import SessionState
from .sessions import Session, Sessions

AHEAD_MS = 1_000
"""How far ahead of the lease clock deadlines are looked after."""
RENEWALS_PER_COMMAND_MAX = 1_000


class Leases:
    """Of one leader, in the term in which ``begin`` was called last. Times are the lease clock, in milliseconds."""

    def __init__(self, sessions: Callable[[], Sessions]) -> None:
        """``sessions``: those of the replicated state."""
        self._sessions = sessions
        self._term = -1
        self._heard: dict[str, int] = {}
        # Each session of ``_heard`` once, in the one or the other, with a deadline that the log gave it.
        self._logged: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}
        self._horizon_ms = 0
        self._closing_ms = 0

    def begin(self, term: int, clock_ms: int) -> None:
        """The first command of this term was applied, which gave everybody a full ttl from ``clock_ms`` on."""
        self._term = term
        self._heard.clear()
        self._logged.clear()
        self._due.clear()
        self._horizon_ms = self._closing_ms = clock_ms + AHEAD_MS

    def has_begun(self, term: int) -> bool:
        """Whether anything is heard in this term."""
        return term == self._term

    def stamp(self, term: int, now_ms: int) -> int:
        """What a command may say that the lease clock is."""
        return min(now_ms, self._horizon_ms - 1) if term == self._term else now_ms

    def renew(self, term: int, session: str, now_ms: int) -> SessionState | None:
        """Full ttl from now; None: only the log can tell. Raises UnknownSession, SessionExpired."""
        found = self._sessions().find(session)
        if term != self._term or found.deadline_ms < self._closing_ms:
            return None
        if session not in self._heard:
            heappush(self._logged, (found.deadline_ms, session))
        deadline_ms = self._heard[session] = now_ms + found.ttl_ms
        return SessionState(found.session, found.client_id, found.ttl_ms, deadline_ms)

    def deadline_ms(self, session: Session) -> int:
        """When a live session ends unless it is renewed, as far as this leader heard."""
        return max(session.deadline_ms, self._heard.get(session.session, 0))

    def look_ahead(self, now_ms: int) -> tuple[int, list[tuple[str, int]]]:
        """The next horizon, and the renewals that have to be in the log before ``advance`` to it."""
        self._closing_ms = now_ms + AHEAD_MS
        for session, logged_ms in self._due.items():  # was not written, or renewed meanwhile
            heappush(self._logged, (logged_ms, session))
        self._due.clear()
        while self._logged and self._logged[0][0] < self._closing_ms:
            session = heappop(self._logged)[1]
            deadline_ms = self._sessions().deadline_ms(session)
            if deadline_ms is None:
                del self._heard[session]
            elif deadline_ms < self._closing_ms:
                self._due[session] = deadline_ms
            else:
                heappush(self._logged, (deadline_ms, session))
        return self._closing_ms, [(session, self._heard[session]) for session in self._due]

    def written(self, renewals: list[tuple[str, int]]) -> None:
        """These are in the log."""
        for session, deadline_ms in renewals:
            if self._heard.get(session) == deadline_ms and self._due.pop(session, None) is not None:
                del self._heard[session]

    def advance(self, horizon_ms: int) -> None:
        """All renewals that ``look_ahead`` told are in the log."""
        self._horizon_ms = horizon_ms

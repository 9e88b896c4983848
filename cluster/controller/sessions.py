"""Sessions: opened, renewed, closed, ended by an operator, and expired by the lease clock: pure state of the
controller's machine. And the leases, which the leader alone knows: renewals that it heard, and that are not in the log
yet (SEMANTICS 8).

Slots and resources know what a session holds: the caller that removes a session here ends its grants there.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

import msgspec

from ...partition.api.ledger import session_handle
from ...partition.commands import belongs_to_another
from ...partition.errors import PermissionDenied, SessionExpired, ThrottlingQuotaExceeded, UnknownSession
from ..access.quotas import check_most
from ..model import NO_PRINCIPAL, By
from .timed import Asked, Timed

SESSIONS_MAX = 100_000
TTL_MS_MIN = 1_000
TTL_MS_MAX = 300_000
EXPIRED_MEMORY_MS = 3_600_000
"""How long an expired id is answered SESSION_EXPIRED, on the lease clock."""
EXPIRED_MAX = 100_000
"""Expired ids remembered; past it the oldest is forgotten before its time."""
RETRY_AFTER_MS = 1000
AHEAD_MS = 1_000
"""How far ahead of the lease clock the leader writes renewals to the log."""
STEP_MS = 1_500
"""Milliseconds: the most by which the horizon moves at a look that is held back."""
STILL_LOOKS = 10
"""The first of the held-back looks, at which the horizon stays: two seconds, in which nodes reconnect, and a client
retries whose renewal was answered 503 with Retry-After 1 s.
"""
HELD_BACK_MAX = 50
"""Most looks in a row, five a second, that are held back."""
RENEWALS_PER_COMMAND_MAX = 1_000


class OpenSession(Asked, frozen=True, tag="open_session"):
    """Open a session; ``ttl_ms`` is clamped to the allowed range. The same id again gives the same session.

    Answers SessionState, or SessionExpired, ThrottlingQuotaExceeded.
    """

    session: str
    client_id: str
    ttl_ms: int


class RenewSession(Asked, frozen=True, tag="renew_session"):
    """Give a session its full ttl from now. Answers SessionState, or UnknownSession, SessionExpired."""

    session: str


class RenewSessions(Timed, frozen=True, tag="renew_sessions"):
    """Extend sessions to these deadlines: the leader has heard their renewals. Answers Done."""

    deadlines_ms: list[tuple[str, int]]


class CloseSession(Asked, frozen=True, tag="close_session"):
    """End a session and its grants. Idempotent. Answers Freed."""

    session: str


class FenceSession(Asked, frozen=True, tag="fence_session"):
    """End the session with this handle on an operator's order. ``if_grants``, ``if_resources``: only if its grants have
    this digest (grants_digest), and if it owns so many resources (None: in any case).

    From feature level 2 on. Answers SessionEnded, or NotFound (no such session lives), InvalidRequest, PlanChanged.
    """

    handle: str
    reason: str | None = None
    if_grants: str | None = None
    if_resources: int | None = None


class SessionState(msgspec.Struct, frozen=True, tag="session"):
    """A live session. It ends when the lease clock reaches ``deadline_ms``."""

    session: str
    client_id: str
    ttl_ms: int
    deadline_ms: int


class Session(msgspec.Struct):
    """A live session, of the principal that opened it ("": none)."""

    session: str
    client_id: str
    ttl_ms: int
    deadline_ms: int
    principal: str = ""

    def state(self) -> SessionState:
        """The session, as answers have it."""
        return SessionState(self.session, self.client_id, self.ttl_ms, self.deadline_ms)


def ttl_in_range(ttl_ms: int) -> int:
    """A requested ttl, clamped to the range from TTL_MS_MIN to TTL_MS_MAX."""
    return min(max(ttl_ms, TTL_MS_MIN), TTL_MS_MAX)


class SavedSessions(msgspec.Struct, frozen=True):
    """The saved state of Sessions; ``expired``: ids, with the lease clock of their end, the oldest first."""

    live: list[Session]
    expired: list[tuple[str, int]]


class Sessions:
    """All live sessions, and for EXPIRED_MEMORY_MS the ids of those that expired or that an operator ended."""

    def __init__(self) -> None:
        self._live: dict[str, Session] = {}
        self._by_handle: dict[str, str] = {}
        self._counts: Counter[str] = Counter()  # by principal
        self._expired: OrderedDict[str, int] = OrderedDict()  # id -> lease clock of its end; the oldest first
        # One entry for each session that was opened, with its deadline or an earlier one: an entry that a renewal has
        # outdated is put back with the true deadline when it is due.
        self._deadlines: list[tuple[int, str]] = []

    def open(self, session: str, client_id: str, ttl_ms: int, clock_ms: int, by: By = NO_PRINCIPAL) -> Session:
        """A new session; or the live one of this id, which only a repeated command can bring again. Raises
        SessionExpired, ThrottlingQuotaExceeded.
        """
        if session in self._live:
            return self._live[session]
        if session in self._expired:
            raise SessionExpired()
        check_most(by, self._counts[by.principal], "sessions")
        if len(self._live) >= SESSIONS_MAX:
            raise ThrottlingQuotaExceeded(
                f"the cluster has {SESSIONS_MAX} sessions already", retry_after_ms=RETRY_AFTER_MS
            )
        ttl_ms = ttl_in_range(ttl_ms)
        opened = Session(session, client_id, ttl_ms, clock_ms + ttl_ms, by.principal)
        self._counts[by.principal] += 1
        self._live[session] = opened
        self._by_handle[session_handle(session)] = session
        heappush(self._deadlines, (opened.deadline_ms, session))
        return opened

    def find(self, session: str) -> Session:
        """The live session. Raises SessionExpired, or UnknownSession when it was closed or is not remembered."""
        found = self._live.get(session)
        if found is not None:
            return found
        raise SessionExpired() if session in self._expired else UnknownSession()

    def with_handle(self, handle: str) -> Session | None:
        """The live session that operators know by this handle; None: there is none."""
        session = self._by_handle.get(handle)
        return self._live[session] if session is not None else None

    def of(self, session: str, principal: str) -> Session:
        """The live session, which this principal may use. Raises as ``find`` does, and PermissionDenied."""
        found = self.find(session)
        if belongs_to_another(found.principal, principal):
            raise PermissionDenied("the session is another principal's")
        return found

    def principal(self, session: str) -> str:
        """The principal of a session; "" when the session is not alive."""
        found = self._live.get(session)
        return found.principal if found is not None else ""

    def renew(self, session: str, clock_ms: int, principal: str = "") -> Session:
        """Give a session its full ttl from ``clock_ms``. Raises as ``of`` does."""
        found = self.of(session, principal)
        before, found.deadline_ms = found.deadline_ms, clock_ms + found.ttl_ms
        if found.deadline_ms < before:
            self._order_deadlines()
        return found

    def extend(self, deadlines_ms: Iterable[tuple[str, int]]) -> None:
        """Move the deadlines of live sessions to these times, never back."""
        for session, deadline_ms in deadlines_ms:
            found = self._live.get(session)
            if found is not None:
                found.deadline_ms = max(found.deadline_ms, deadline_ms)

    def deadline_ms(self, session: str) -> int | None:
        """The lease clock at which a session ends unless it is renewed; None: it is not alive."""
        found = self._live.get(session)
        return found.deadline_ms if found is not None else None

    @property
    def count(self) -> int:
        """The number of live sessions."""
        return len(self._live)

    def live(self) -> Iterable[Session]:
        """Every live session, in no order that counts."""
        return self._live.values()

    def close(self, session: str, principal: str = "") -> None:
        """Remove a session, if it is alive. Raises PermissionDenied."""
        if session in self._live:
            self._forget(self.of(session, principal))

    def evict(self, session: str, clock_ms: int) -> None:
        """End a live session of any principal; its id is answered SESSION_EXPIRED from now on."""
        self._forget(self._live[session])
        self._remember(session, clock_ms)

    def rearm(self, clock_ms: int) -> None:
        """Give every session its full ttl: a new leader cannot know which renewals the last one heard (SEMANTICS 8)."""
        for session in self._live.values():
            session.deadline_ms = clock_ms + session.ttl_ms
        self._order_deadlines()

    def expire_next(self, clock_ms: int) -> str | None:
        """Remove the due session that is first by (deadline, id). Returns its id; None when none is due."""
        while self._deadlines and self._deadlines[0][0] <= clock_ms:
            entry = heappop(self._deadlines)
            found = self._live.get(entry[1])
            if found is None:
                continue
            if entry[0] == found.deadline_ms:
                self._forget(found)
                self._remember(found.session, clock_ms)
                return found.session
            heappush(self._deadlines, (found.deadline_ms, found.session))
        return None

    def next_deadline_ms(self) -> int | None:
        """The lease clock before which no session expires; None: there is no session."""
        return self._deadlines[0][0] if self._deadlines else None

    def save(self) -> SavedSessions:
        """The state on which future answers depend."""
        return SavedSessions(list(self._live.values()), list(self._expired.items()))

    def load(self, saved: SavedSessions) -> None:
        """Inverse of ``save``, on an empty instance."""
        self._live = {session.session: session for session in saved.live}
        self._by_handle = {session_handle(session.session): session.session for session in saved.live}
        self._counts = Counter(session.principal for session in saved.live)
        self._expired = OrderedDict(saved.expired)
        self._order_deadlines()

    def _order_deadlines(self) -> None:
        self._deadlines = sorted((session.deadline_ms, session.session) for session in self._live.values())

    def _forget(self, session: Session) -> None:
        del self._live[session.session]
        del self._by_handle[session_handle(session.session)]
        self._counts[session.principal] -= 1
        if not self._counts[session.principal]:
            del self._counts[session.principal]

    def _remember(self, session: str, clock_ms: int) -> None:
        self._expired[session] = clock_ms
        while True:
            oldest = next(iter(self._expired))
            aged = clock_ms - self._expired[oldest] >= EXPIRED_MEMORY_MS
            if not aged and len(self._expired) <= EXPIRED_MAX:
                return
            del self._expired[oldest]


class Leases:
    """Renewals that one leader heard, in the term in which ``begin`` was called last. Times are the lease clock, in ms.

    A session costs one line of a command a ttl, however often it is renewed: the leader writes renewals to the log only
    shortly before the deadline there is reached. Two rules keep that safe. (1) Every command has ``stamp < horizon``,
    and a session whose deadline in the log is below the horizon has no renewal that only the leader knows. (2) A
    session whose deadline is near is renewed by a command of its own; when the stamp ``lags``, a second command with
    the true deadline follows directly. So a leader that stalls slows the lease clock, and ends no session whose renewal
    it has received. Renewals that only a lost leader had received are replaced by the first command of the next leader,
    which gives every session a full ttl.

    A leader that stood still without a successor has to receive the renewals in flight before its lease clock catches
    up with its own clock. So the horizon stays where it is for STILL_LOOKS looks, and then moves by at most STEP_MS a
    look, until HELD_BACK_MAX looks have passed.
    """

    def __init__(self, sessions: Callable[[], Sessions]) -> None:
        """``sessions`` gives the sessions of the replicated state."""
        self._sessions = sessions
        self._term = -1
        self._heard: dict[str, int] = {}
        # Each session of ``_heard`` is once in ``_logged`` or ``_due``, with a deadline that the log gave it.
        self._logged: list[tuple[int, str]] = []
        self._due: dict[str, int] = {}
        self._horizon_ms = 0
        self._closing_ms = 0
        self._held_back = 0

    def begin(self, term: int, clock_ms: int) -> None:
        """Begin a term: its first command was applied, and gave every session a full ttl from ``clock_ms`` on."""
        self._term = term
        self._heard.clear()
        self._logged.clear()
        self._due.clear()
        self._horizon_ms = self._closing_ms = clock_ms + AHEAD_MS

    def has_begun(self, term: int) -> bool:
        """Whether the leader hears renewals in this term yet."""
        return term == self._term

    def stamp(self, term: int, now_ms: int) -> int:
        """The lease clock that a command may carry in this term: ``min(now_ms, horizon - 1)``."""
        return min(now_ms, self._horizon_ms - 1) if term == self._term else now_ms

    def lags(self, term: int, now_ms: int) -> bool:
        """Whether the stamp is behind this lease clock, so that a ttl counted from the stamp would end too early."""
        return self.stamp(term, now_ms) < now_ms

    def renew(self, term: int, session: str, now_ms: int, principal: str = "") -> SessionState | None:
        """Renew a session in the leader's memory: full ttl from now. None: the renewal has to go through the log.
        Raises UnknownSession, SessionExpired, PermissionDenied.
        """
        found = self._sessions().of(session, principal)
        if term != self._term or found.deadline_ms < self._closing_ms:
            return None
        if session not in self._heard:
            heappush(self._logged, (found.deadline_ms, session))
        deadline_ms = self._heard[session] = now_ms + found.ttl_ms
        return SessionState(found.session, found.client_id, found.ttl_ms, deadline_ms)

    def deadline_ms(self, session: Session) -> int:
        """The lease clock at which a live session ends unless it is renewed, by all that this leader heard."""
        return max(session.deadline_ms, self._heard.get(session.session, 0))

    def look_ahead(self, now_ms: int) -> tuple[int, list[tuple[str, int]]]:
        """The next horizon, and the renewals that have to be in the log before ``advance`` moves the horizon there."""
        self._closing_ms, step_ms = now_ms + AHEAD_MS, self._horizon_ms + STEP_MS
        is_held_back = step_ms < self._closing_ms and self._held_back < HELD_BACK_MAX
        self._held_back = self._held_back + 1 if is_held_back else 0
        if is_held_back:
            self._closing_ms = step_ms if self._held_back > STILL_LOOKS else self._horizon_ms
        for session, logged_ms in self._due.items():  # not written, or renewed again meanwhile
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
        """Note that these renewals are in the log."""
        for session, deadline_ms in renewals:
            if self._heard.get(session) == deadline_ms and self._due.pop(session, None) is not None:
                del self._heard[session]

    def advance(self, horizon_ms: int) -> None:
        """Move the horizon: all renewals that ``look_ahead`` returned with it are in the log."""
        self._horizon_ms = horizon_ms

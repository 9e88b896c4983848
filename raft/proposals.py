"""What waits for an answer in one group: proposals for their commit, barriers for their round, handovers for a leader.

Never silent.
"""

import logging
from collections import deque
from collections.abc import Callable

from .leading import Leading
from .outcomes import NotLeader, Outcome, Unknown
from .settings import RaftSettings

_log = logging.getLogger(__name__)

EXPIRY_STEP_S = 0.01
"""Deadlines are looked at this often at most, so that many of them passing together cost one look."""


class PendingProposal:
    """A proposal that was accepted. ``index`` is its place in the log once it has one."""

    __slots__ = ("_settle", "_table", "deadline", "index", "size")

    def __init__(self, table: "Proposals", size: int, deadline: float, settle: Callable[[Outcome], None]) -> None:
        self._table = table
        self._settle = settle
        self.size: int = size
        self.deadline: float = deadline
        self.index: int | None = None

    def settle(self, outcome: Outcome) -> None:
        """Answer, unless that was done. An exception of whoever is answered is not Raft's business: logged (D5)."""
        if self._table.remove(self):
            try:
                self._settle(outcome)
            except Exception:
                _log.exception("whoever waited for a proposal failed on its outcome %r", outcome)


class Proposals:
    """The proposals of a group that wait for an answer."""

    def __init__(self, settings: RaftSettings) -> None:
        self._count_max = settings.pending_count_max
        self._bytes_max = settings.pending_bytes_max
        self._waiting: dict[PendingProposal, None] = {}
        self._bytes = 0
        self.next_deadline: float = float("inf")

    def add(self, size: int, deadline: float, settle: Callable[[Outcome], None]) -> PendingProposal | None:
        """A new one of ``size`` bytes, or None if there are too many."""
        if len(self._waiting) >= self._count_max or self._bytes + size > self._bytes_max:
            return None
        proposal = PendingProposal(self, size, deadline, settle)
        self._waiting[proposal] = None
        self._bytes += size
        self.next_deadline = min(self.next_deadline, deadline)
        return proposal

    def remove(self, proposal: PendingProposal) -> bool:
        """It is settled; False if it was before."""
        if proposal not in self._waiting:
            return False
        del self._waiting[proposal]
        self._bytes -= proposal.size
        return True

    def expire(self, now: float) -> None:
        """Settle those whose deadline has passed as unknown."""
        if now < self.next_deadline:
            return
        for proposal in [each for each in self._waiting if each.deadline <= now]:
            proposal.settle(Unknown(proposal.index))
        earliest = min((each.deadline for each in self._waiting), default=float("inf"))
        self.next_deadline = max(earliest, now + EXPIRY_STEP_S)

    def abandon(self) -> None:
        """Settle all of them as unknown."""
        for proposal in list(self._waiting):
            proposal.settle(Unknown(proposal.index))


class Barrier:
    """A read that waits until ``leading`` is proved by the answers to ``round`` and ``index`` is applied."""

    __slots__ = ("_settle", "deadline", "index", "leading", "round")

    def __init__(
        self, leading: Leading, round_: int, index: int, deadline: float, settle: Callable[[Exception | None], None]
    ) -> None:
        self.leading: Leading = leading
        self.round: int = round_
        self.index: int = index
        self.deadline: float = deadline
        self._settle = settle

    def settle(self, error: Exception | None) -> None:
        """Answer. An exception of whoever is answered is logged."""
        try:
            self._settle(error)
        except Exception:
            _log.exception("whoever waited for a read barrier failed on its outcome %r", error)


class Barriers:
    """The barriers of a group, in the order in which they become true: rounds and indexes only grow."""

    def __init__(self) -> None:
        self.waiting: deque[Barrier] = deque()
        """Those that are not settled. Do not change it."""
        self.next_deadline: float = float("inf")

    def add(self, barrier: Barrier) -> None:
        """Wait for one more."""
        self.waiting.append(barrier)
        self.next_deadline = min(self.next_deadline, barrier.deadline)

    def check(self, leading: Leading | None, applied_index: int, refusal: NotLeader) -> None:
        """Settle those that have become true, and those whose leadership is over."""
        while self.waiting and self.waiting[0].leading is not leading:
            self.waiting.popleft().settle(refusal)
        if leading is None or not self.waiting:
            return
        answered_round = leading.majority_round()
        while self.waiting and self.waiting[0].round <= answered_round and self.waiting[0].index <= applied_index:
            self.waiting.popleft().settle(None)

    def expire(self, now: float) -> None:
        """Settle those whose deadline has passed."""
        if now < self.next_deadline:
            return
        late = [barrier for barrier in self.waiting if barrier.deadline <= now]
        self.waiting = deque(barrier for barrier in self.waiting if barrier.deadline > now)
        earliest = min((barrier.deadline for barrier in self.waiting), default=float("inf"))
        self.next_deadline = max(earliest, now + EXPIRY_STEP_S)
        for barrier in late:
            barrier.settle(TimeoutError("no majority confirmed the leader in time"))


class Handover:
    """Somebody waits until ``heir`` leads, or anybody else if that is None, in place of the leader of ``term``."""

    __slots__ = ("_settle", "deadline", "heir", "term")

    def __init__(
        self, heir: str | None, term: int, deadline: float, settle: Callable[[Exception | None], None]
    ) -> None:
        self.heir: str | None = heir
        self.term: int = term
        self.deadline: float = deadline
        self._settle = settle

    def settle(self, error: Exception | None) -> None:
        """Answer. An exception of whoever is answered is logged."""
        try:
            self._settle(error)
        except Exception:
            _log.exception("whoever waited for a handover failed on its outcome %r", error)


class Handovers:
    """The handovers of a group that somebody waits for."""

    def __init__(self) -> None:
        self.waiting: list[Handover] = []

    @property
    def next_deadline(self) -> float:
        """When the next one is given up."""
        return min((each.deadline for each in self.waiting), default=float("inf"))

    def check(self, node_id: str, leader: str | None, term: int) -> None:
        """``leader`` leads ``term``, as far as this node knows: settle those that this decides."""
        for each in [each for each in self.waiting if each.term != term and leader is not None]:
            self.waiting.remove(each)
            done = leader == each.heir or (each.heir is None and leader != node_id)
            each.settle(None if done else NotLeader(leader, term))

    def expire(self, now: float) -> None:
        """Give up those whose deadline has passed."""
        late = [each for each in self.waiting if each.deadline <= now]
        self.waiting = [each for each in self.waiting if each.deadline > now]
        for each in late:
            each.settle(TimeoutError("the leadership was not handed over in time"))

"""What a leader knows of one follower: how far its log matches, what to send it next, and what is in flight.

``match_index < next_index`` holds: entries up to ``match_index`` are on the follower's disk and equal to the leader's,
``next_index`` is the next one to send.
"""

import logging
from collections import deque
from collections.abc import Callable
from math import inf

from ..settings import RaftSettings

_log = logging.getLogger(__name__)

FEW_ENTRIES, FEW_BYTES = 8, 16 << 10
"""Fewer entries, of fewer bytes together, wait for an answer while fewer than FEW_BYTES are in flight."""


class Progress:
    """The progress of one follower, voter or learner, as its leader knows it. All of it was learned from one disk: a
    follower that comes back with another disk gets a new Progress.
    """

    def __init__(self, node_id: str, next_index: int, incarnation: int | None, round_: int, now: float) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        """Incarnation of the follower's disk; None while the follower was never connected."""
        self.member_incarnation = 0
        """Incarnation of the disk with which the configuration names the follower."""
        self.is_voter = False
        self.connected: bool = incarnation is not None

        self.next_index: int = next_index
        """The next index to send. It runs ahead of the acks; only a refusal or a change of connection sets it back."""
        self.match_index: int = 0
        """All entries up to here are on the follower's disk and equal to the leader's log."""
        self.probing: bool = True
        """Whether it is unknown where the logs match: one message at a time; ``next_index`` waits for its answer."""
        self.probed_index = 0
        self.round = 0
        """The latest round that the follower has answered."""
        self.stale_round: int = round_
        """Refusals that name this round or an earlier one are ignored: they were acted upon already."""
        self.offered_round = 0
        """The round of the latest offer of a checkpoint."""
        self.first_round: int = round_ + 1
        """Acks that name an earlier round do not count: they speak of an earlier membership of this node."""
        self.goal: int = 0
        self.goal_at: float = -inf
        """For a learner and the heir: the log's end when the present round of catching up began (0: none), and when."""
        self.keeps_up: bool = False  # whether the last round was quick
        self.sent_commit = 0
        """The latest commit index that the follower was sent."""
        self.sent_at: float = -inf
        """When the follower was sent a message last."""
        self.contact = now
        """When the follower answered last."""
        self.window: deque[tuple[int, int]] = deque()
        """The messages with entries in flight: (last index, bytes of entries) of each."""
        self._window_bytes = 0

    @property
    def counts(self) -> bool:
        """Whether the follower's entries and answers count for a majority: it is a voter, with the configured disk."""
        return self.is_voter and self.incarnation == self.member_incarnation

    def may_be_sent(self, settings: RaftSettings, is_little: Callable[[int], bool]) -> bool:
        """Whether a message with entries may be sent now. ``is_little`` returns whether the entries from an index on
        are few and small altogether.

        Few small entries wait until the message before them is answered, and then go together: with many groups on a
        node messages cost more than entries.
        """
        if not self.window:
            return True
        if self.probing or (self._window_bytes < FEW_BYTES and is_little(self.next_index)):
            return False
        return self._window_bytes < settings.window_bytes_max and len(self.window) < settings.window_messages_max

    def sent(self, last_index: int, size: int) -> None:
        """Note that the entries from ``next_index`` to ``last_index``, of ``size`` bytes, are in flight."""
        self.window.append((last_index, size))
        self._window_bytes += size
        if not self.probing:
            self.next_index = last_index + 1

    def matched(self, index: int) -> None:
        """Note that the follower has all entries up to ``index`` on disk."""
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        if self.probing:
            self.probing = False
            self._empty_window()  # perhaps the answer to a heartbeat ended the probing, and the probe was lost
        while self.window and self.window[0][0] <= self.match_index:
            self._window_bytes -= self.window.popleft()[1]

    def end_round(self, last_index: int, now: float, quick_s: float) -> None:
        """End a round if the follower has all that the log held at its beginning (Ongaro, 4.2.1), or it is overdue."""
        if self.match_index >= self.goal or now - self.goal_at > quick_s:  # a hanging disk answers heartbeats, too
            self.keeps_up = self.goal > 0 and now - self.goal_at <= quick_s
            self.goal, self.goal_at = last_index, now

    def rewind(self, next_index: int, round_: int) -> None:
        """Start again to probe from ``next_index``; ``round_`` is the latest round sent.

        Raft excludes that a disk loses what it has acknowledged. A disk that did so all the same no longer counts for
        the entries that it lost, and gets them again.
        """
        if next_index <= self.match_index:
            _log.error("%s has lost entries %d to %d that it had on disk", self.node_id, next_index, self.match_index)
            self.match_index = next_index - 1
        self.next_index = next_index
        self.stale_round = round_
        self.probing, self.keeps_up = True, False
        self._empty_window()

    def _empty_window(self) -> None:
        self.window.clear()
        self._window_bytes = 0

"""One follower, as its leader sees it: where it is, what is in flight to it, and what it has answered."""

import logging
from collections import deque

from .settings import RaftSettings

_log = logging.getLogger(__name__)


FEW_ENTRIES, FEW_BYTES = 8, 16 << 10
"""So few entries, so few bytes in flight: too little for a message of their own while another is not answered."""


class Follower:
    """A voter or learner. What is known of it was learned from one disk: of another, nothing is known."""

    def __init__(self, node_id: str, next_index: int, incarnation: int | None, round_: int, now: float) -> None:
        self.node_id = node_id
        self.incarnation = incarnation
        """The disk that it has, None while it was never connected."""
        self.member_incarnation = 0
        """The disk with which the configuration names it."""
        self.is_voter = False
        self.connected: bool = incarnation is not None

        self.next_index: int = next_index
        """What to send next. In a stream it runs ahead of the acks; only a refusal or a new connection sets it back."""
        self.match_index: int = 0
        """Everything up to here is on the follower's disk and equal to our journal."""
        self.probing: bool = True
        """Where the journals meet is not known: one message at a time, and ``next_index`` waits for its answer."""
        self.probed_index = 0
        self.round = 0
        """The latest round that the follower has answered."""
        self.stale_round: int = round_
        """Refusals of this and earlier rounds were acted upon already."""
        self.first_round: int = round_ + 1
        """Answers to earlier ones speak of an earlier membership of this node."""
        self.told_commit = 0
        self.told_at: float = float("-inf")
        """When it was sent a message last."""
        self.contact = now
        self._window: deque[tuple[int, int]] = deque()
        self._window_bytes = 0

    @property
    def counts(self) -> bool:
        """Whether what it has and answers counts as a voter's."""
        return self.is_voter and self.incarnation == self.member_incarnation

    def has_room(self, settings: RaftSettings, *, little: bool) -> bool:
        """Whether another message may be sent before an answer; ``little``: it would be one of few small entries.

        Few small ones wait until the message before them is answered, and go together: with many groups on a node it is
        messages that cost, not entries.
        """
        if self.probing or (little and self._window_bytes < FEW_BYTES):
            return not self._window
        return self._window_bytes < settings.window_bytes_max and len(self._window) < settings.window_messages_max

    def sent(self, last_index: int, size: int) -> None:
        """Entries from ``next_index`` up to ``last_index`` are on their way."""
        self._window.append((last_index, size))
        self._window_bytes += size
        if not self.probing:
            self.next_index = last_index + 1

    def matched(self, index: int) -> None:
        """The follower has everything up to ``index`` on disk."""
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        if self.probing:
            self.probing = False
            self._empty_window()  # a heartbeat may have found the place, and the probe been dropped
        while self._window and self._window[0][0] <= self.match_index:
            self._window_bytes -= self._window.popleft()[1]

    def rewind(self, next_index: int, round_: int) -> None:
        """Start again from ``next_index``; ``round_`` is the latest round sent.

        Raft excludes that a disk loses what it has acknowledged. One that did so all the same no longer counts for what
        it lost, and gets it again.
        """
        if next_index <= self.match_index:
            _log.error("%s has lost entries %d to %d that it had on disk", self.node_id, next_index, self.match_index)
            self.match_index = next_index - 1
        self.next_index = next_index
        self.stale_round = round_
        self.probing = True
        self._empty_window()

    def _empty_window(self) -> None:
        self._window.clear()
        self._window_bytes = 0

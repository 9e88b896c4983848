"""What a leader knows of its followers and what it sends them: windows, repair, rounds, and what a majority has.

An instance lives as long as one leadership, so nothing learned in one term can count in another.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from .journal import Journal
from .messages import AppendAck, AppendEntries
from .settings import RaftSettings

_log = logging.getLogger(__name__)

Send = Callable[[str, AppendEntries], bool]


class Follower:
    """One follower, as its leader sees it."""

    def __init__(self, node_id: str, next_index: int, connected: bool, now: float) -> None:
        self.node_id = node_id
        self.connected = connected
        self.next_index = next_index
        """What to send next. In a stream it runs ahead of the acks; only a refusal or a new connection sets it back."""
        self.match_index = 0
        """Everything up to here is on the follower's disk and equal to our journal."""
        self.probing = True
        """Where the journals meet is not known: one message at a time, and ``next_index`` waits for its answer."""
        self.probed_index = 0
        self.round = 0
        """The latest round that the follower has answered."""
        self.stale_round = 0
        """Refusals of this and earlier rounds were acted upon already."""
        self.told_commit = 0
        self.contact = now
        self._window: deque[tuple[int, int]] = deque()
        self._window_bytes = 0

    def has_room(self, settings: RaftSettings) -> bool:
        """Whether another message with entries may be sent before an answer."""
        if self.probing:
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

        Raft excludes that a follower asks for what it has acknowledged, but a wiped disk does not: it no longer counts
        for what it lost, and gets it again.
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


class Leading:
    """One leadership."""

    def __init__(
        self,
        journal: Journal,
        peers: Iterable[str],
        connected: set[str],
        settings: RaftSettings,
        send: Send,
        now: float,
    ) -> None:
        next_index = journal.last_index + 1
        self.term = journal.term
        self.no_op_index = next_index
        self.followers = {peer: Follower(peer, next_index, peer in connected, now) for peer in peers}
        self.round = 0
        self._journal = journal
        self._settings = settings
        self._send = send
        self._majority_others = (len(self.followers) + 1) // 2

    def broadcast(self, commit_index: int, *, beat: bool) -> None:
        """Send every follower the entries it lacks, as far as its window allows; with ``beat`` an empty message, too.

        An empty message is answered at once, one with entries only after the follower's disk sync.
        """
        shared: dict[tuple[int, bool], AppendEntries] = {}
        for follower in self.followers.values():
            if follower.connected:
                self._feed(follower, commit_index, shared)
                if beat:
                    self._put(follower, commit_index, shared, empty=True)

    def _feed(self, follower: Follower, commit_index: int, shared: dict[tuple[int, bool], AppendEntries]) -> None:
        while follower.next_index <= self._journal.last_index and follower.has_room(self._settings):
            if not self._put(follower, commit_index, shared, empty=False):
                return

    def _put(
        self, follower: Follower, commit_index: int, shared: dict[tuple[int, bool], AppendEntries], *, empty: bool
    ) -> bool:
        """Send one message. Followers at the same place get the very same one, so it is read and encoded once."""
        key = (follower.next_index, empty)
        message = shared.get(key)
        if message is None:
            message = shared[key] = self._message(follower.next_index, commit_index, empty)
        if not self._send(follower.node_id, message):
            return False
        follower.told_commit = commit_index
        follower.probed_index = message.prev_index
        if message.entries:
            size = sum(len(payload) for _, _, payload in message.entries)
            follower.sent(message.entries[-1][0], size)
        return True

    def _message(self, next_index: int, commit_index: int, empty: bool) -> AppendEntries:
        self.round += 1
        entries = [] if empty else self._journal.read(next_index, self._settings.message_bytes_max)
        prev = next_index - 1
        return AppendEntries(self.term, commit_index, prev, self._journal.term_at(prev), self.round, entries)

    def answered(self, node_id: str, ack: AppendAck, now: float) -> None:
        """Take in an ack of this term. Only a refusal sets ``next_index`` back, once for all that was in flight."""
        follower = self.followers[node_id]
        follower.contact = now
        follower.round = max(follower.round, ack.round)
        if ack.success:
            assert ack.next_index <= self._journal.last_index + 1, "acked what was never sent"
            follower.matched(ack.next_index - 1)
        elif ack.round > follower.stale_round:
            follower.rewind(self._retry_index(follower, ack.next_index), self.round)

    def _retry_index(self, follower: Follower, hint: int) -> int:
        if follower.probing and hint == follower.probed_index + 1:
            return max(self._journal.run_start(follower.probed_index), follower.match_index + 1)
        return min(hint, self._journal.last_index + 1)

    def connected(self, node_id: str, connected: bool) -> None:
        """A connection came up, or broke: nothing that was in flight on it will arrive."""
        follower = self.followers[node_id]
        follower.connected = connected
        follower.rewind(follower.match_index + 1 if follower.match_index else follower.next_index, self.round)

    def majority_index(self) -> int:
        """The highest index that a majority has on disk, ourselves included up to our own durable index."""
        indexes = [follower.match_index for follower in self.followers.values()]
        indexes.append(self._journal.durable_index)
        indexes.sort(reverse=True)
        return indexes[self._majority_others]

    def majority_round(self) -> float:
        """The latest round that a majority, ourselves counted, has answered."""
        return self._of_majority([follower.round for follower in self.followers.values()])

    def majority_contact(self) -> float:
        """When a majority, ourselves counted, was heard last."""
        return self._of_majority([follower.contact for follower in self.followers.values()])

    def forgive(self, seconds: float) -> None:
        """Do not count so much of the followers' silence."""
        for follower in self.followers.values():
            follower.contact += seconds

    def _of_majority(self, values: Sequence[float]) -> float:
        """What as many followers as make a majority with us have at least; no bound if we are a majority alone."""
        if self._majority_others == 0:
            return float("inf")
        return sorted(values, reverse=True)[self._majority_others - 1]

    def all_told(self, commit_index: int) -> bool:
        """Whether every connected follower was sent this commit index."""
        return all(f.told_commit >= commit_index for f in self.followers.values() if f.connected)

    def furthest(self) -> Follower | None:
        """The connected follower with the longest matching journal."""
        there = [follower for follower in self.followers.values() if follower.connected]
        return max(there, key=lambda follower: follower.match_index, default=None)

"""What a leader knows of its followers and what it sends them: windows, repair, rounds, and what a majority has.

An instance lives as long as one leadership, so nothing learned in one term can count in another.
"""

import sys
from collections.abc import Callable

from ..partition.switches import has_defect
from .configuration import AddLearner, Change, Demote, Promote
from .follower import FEW_BYTES, FEW_ENTRIES, Follower
from .journal import Journal
from .membership import Membership
from .messages import AppendAck, AppendEntries, Offer
from .settings import RaftSettings

_COMMITS_ALONE = has_defect("commit")
_READS_ALONE = has_defect("stale-reads")

Send = Callable[[str, AppendEntries | Offer], bool]
Shared = dict[tuple[int, bool], AppendEntries | Offer]


class Leading:
    """One leadership."""

    def __init__(
        self, journal: Journal, membership: Membership, settings: RaftSettings, send: Send, now: float
    ) -> None:
        self.term: int = journal.term
        self.no_op_index: int = journal.last_index + 1
        self.followers: dict[str, Follower] = {}
        self.round: int = 0
        self.heir: str | None = None
        """The voter that the leadership is being handed over to."""
        self.is_settled: bool = False
        """Whether we and all followers are voters, with the disks that they are known by: there is nobody to change."""
        self._journal = journal
        self._membership = membership
        self._settings = settings
        self._send = send
        self.reconfigure(now)

    def reconfigure(self, now: float) -> None:
        """The configuration has changed: whoever left it gets nothing more, whoever came is asked where it stands."""
        configuration = self._membership.configuration
        others = {node_id: it for node_id, it in configuration.members.items() if node_id != self._membership.node_id}
        self.followers = {node_id: self.followers.get(node_id) or self._new(node_id, now) for node_id in others}
        for node_id, follower in self.followers.items():
            follower.member_incarnation = others[node_id]
            follower.is_voter = node_id in configuration.voters
        self._voters = [follower for follower in self.followers.values() if follower.is_voter]
        self._is_voter = self._membership.is_voter
        self._look_around()
        self._majority_others = len(configuration.voters) // 2

    def _look_around(self) -> None:
        followers = self.followers.values()
        known = all(each.incarnation in {None, each.member_incarnation} for each in followers)
        self.is_settled = self._is_voter and known and len(self._voters) == len(followers)

    def _new(self, node_id: str, now: float) -> Follower:
        return Follower(node_id, self._journal.last_index + 1, self._membership.peers.get(node_id), self.round, now)

    def broadcast(self, commit_index: int, now: float, *, beat: bool) -> None:
        """Send every follower the entries it lacks, as far as its window allows; with ``beat`` an empty message, too.

        An empty message is answered at once, one with entries only after the follower's disk sync. To a follower that
        lacks entries which are gone, the empty message is the offer of a checkpoint. ``now`` is noted of whoever is
        sent anything.
        """
        shared: Shared = {}
        last_index, base_index = self._journal.last_index, self._journal.base_index
        followers = [follower for follower in self.followers.values() if follower.connected]
        for follower in followers:
            if base_index < follower.next_index <= last_index:
                self._feed(follower, commit_index, now, shared)
        if beat:
            for follower in followers:
                self._put(follower, commit_index, now, shared, empty=True)

    def quiet_at(self, period_s: float) -> float:
        """When a follower was told nothing, or has said nothing, for so long."""
        since = [min(each.told_at, each.contact) for each in self.followers.values() if each.connected]
        return min(since, default=float("-inf")) + period_s

    def has_few_to_send(self) -> bool:
        """Whether nobody waits for more than a few entries, and somebody for some."""
        first = min((each.next_index for each in self.followers.values() if each.connected), default=sys.maxsize)
        return first <= self._journal.last_index and self._is_little(first)

    def _is_little(self, first: int) -> bool:
        """Whether the entries from here on are few, and small altogether."""
        journal = self._journal
        if first <= journal.base_index or journal.last_index + 1 - first >= FEW_ENTRIES:
            return False
        return sum(len(journal.payload_at(index)) for index in range(first, journal.last_index + 1)) < FEW_BYTES

    def _feed(self, follower: Follower, commit_index: int, now: float, shared: Shared) -> None:
        last_index = self._journal.last_index
        while follower.next_index <= last_index and follower.has_room(
            self._settings, little=self._is_little(follower.next_index)
        ):
            if not self._put(follower, commit_index, now, shared, empty=False):
                return

    def _put(self, follower: Follower, commit_index: int, now: float, shared: Shared, *, empty: bool) -> bool:
        """Send one message. Followers at the same place get the very same one, so it is read and encoded once."""
        key = (follower.next_index, empty)
        message = shared.get(key)
        if message is None:
            message = shared[key] = self._message(follower.next_index, commit_index, empty)
        if not self._send(follower.node_id, message):
            return False
        follower.told_commit, follower.told_at = commit_index, now
        if isinstance(message, AppendEntries):
            follower.probed_index = message.prev_index
            if message.entries:
                size = sum(len(payload) for _, _, payload in message.entries)
                follower.sent(message.entries[-1][0], size)
        return True

    def _message(self, next_index: int, commit_index: int, empty: bool) -> AppendEntries | Offer:
        self.round += 1
        if next_index <= self._journal.base_index:
            origin = self._journal.origin
            return Offer(self.term, commit_index, origin.index, origin.term, self.round)
        entries = [] if empty else self._journal.read(next_index, self._settings.message_bytes_max)
        prev = next_index - 1
        return AppendEntries(self.term, commit_index, prev, self._journal.term_at(prev), self.round, entries)

    def answered(self, node_id: str, ack: AppendAck, now: float) -> None:
        """Take in an ack of this term. Only a refusal sets ``next_index`` back, once for all that was in flight."""
        follower = self.followers.get(node_id)
        if follower is None:
            return
        follower.contact = now
        follower.round = max(follower.round, ack.round)
        if ack.success and ack.round >= follower.first_round:
            assert ack.next_index <= self._journal.last_index + 1, "acked what was never sent"
            follower.matched(ack.next_index - 1)
        elif not ack.success and ack.round > follower.stale_round:
            follower.rewind(self._retry_index(follower, ack.next_index), self.round)

    def _retry_index(self, follower: Follower, hint: int) -> int:
        if follower.next_index <= self._journal.base_index:  # it answers an offer, by where its committed part ends
            return min(max(hint, follower.match_index + 1), self._journal.last_index + 1)
        if follower.probing and hint == follower.probed_index + 1:
            return max(self._journal.run_start(follower.probed_index), follower.match_index + 1)
        return min(hint, self._journal.last_index + 1)

    def connected(self, node_id: str, incarnation: int, now: float) -> None:
        """A connection came up: whatever was in flight on the one before is lost."""
        follower = self.followers[node_id]
        if follower.incarnation not in {None, incarnation}:
            self.followers.pop(node_id)
            self.reconfigure(now)
            return
        follower.incarnation, follower.connected = incarnation, True
        self._look_around()
        self._start_over(follower)

    def disconnected(self, node_id: str) -> None:
        """A connection broke: nothing that was in flight on it will arrive."""
        follower = self.followers[node_id]
        follower.connected = False
        self._start_over(follower)

    def _start_over(self, follower: Follower) -> None:
        follower.rewind(follower.match_index + 1 if follower.match_index else follower.next_index, self.round)

    def next_change(self) -> Change | None:
        """What a leader changes by itself: a wiped voter becomes a learner, and one that has caught up a voter."""
        for follower in self.followers.values():
            incarnation = follower.incarnation
            if not follower.connected or incarnation is None:
                continue
            if incarnation != follower.member_incarnation:
                wiped = Demote if follower.is_voter else AddLearner
                return wiped(follower.node_id, incarnation)
            if not follower.is_voter and self.has_caught_up(follower):
                return Promote(follower.node_id)
        return None

    def has_caught_up(self, follower: Follower) -> bool:
        """Whether it has all on disk that was here when this leadership began, and what it lacks since would fit in one
        message. It must have the configuration that names it, too: a disk that does not know that it is a member does
        not vote, and as a voter it may be needed before it gets another message.
        """
        journal = self._journal
        if not follower.connected or follower.probing:
            return False
        if follower.match_index < max(self.no_op_index, journal.base_index, journal.configuration_index):
            return False
        missing = journal.read(follower.match_index + 1, self._settings.message_bytes_max)
        return not missing or missing[-1][0] == journal.last_index

    def heir_is_near(self) -> bool:
        """Whether a handover is under way and hardly anything is missing for it."""
        heir = None if self.heir is None else self.followers.get(self.heir)
        return heir is not None and self.has_caught_up(heir)

    # What a majority of the voters has or has answered. Others count for nothing.

    def majority_index(self) -> int:
        """The highest index that a majority has on disk, ourselves included up to our own durable index."""
        indexes = [follower.match_index if follower.counts else 0 for follower in self._voters]
        if self._is_voter:
            indexes.append(self._journal.durable_index)
            if _COMMITS_ALONE:
                return self._journal.durable_index
        indexes.sort(reverse=True)
        return indexes[self._majority_others]

    def majority_round(self) -> float:
        """The latest round that a majority, ourselves counted, has answered."""
        return self._of_majority([follower.round if follower.counts else 0 for follower in self._voters])

    def majority_contact(self) -> float:
        """When a majority, ourselves counted, was heard last."""
        if _READS_ALONE:
            return float("inf")
        never = float("-inf")
        return self._of_majority(
            [each.contact if each.counts or each.incarnation is None else never for each in self._voters]
        )

    def _of_majority(self, values: list[float]) -> float:
        """What a majority has at least, of which we have anything, if we count."""
        if self._is_voter:
            values.append(float("inf"))
        values.sort(reverse=True)
        return values[self._majority_others]

    def has_news(self, commit_index: int) -> bool:
        """Whether there may be something to commit, to send, to change or to hand over."""
        last_index = self._journal.last_index
        for follower in self.followers.values():
            if follower.next_index <= last_index:
                return True
        return self.majority_index() > commit_index or not self.is_settled or self.heir is not None

    def forgive(self, seconds: float) -> None:
        """Do not count so much of the followers' silence."""
        for follower in self.followers.values():
            follower.contact += seconds

    def all_told(self, commit_index: int) -> bool:
        """Whether every connected follower was sent this commit index."""
        return all(f.told_commit >= commit_index for f in self.followers.values() if f.connected)

    def furthest(self) -> Follower | None:
        """The connected voter with the longest matching journal."""
        there = [follower for follower in self._voters if follower.connected and follower.counts]
        return max(there, key=lambda follower: follower.match_index, default=None)

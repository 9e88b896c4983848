"""The state of a leadership: each follower's progress, what to send it, rounds of acks, and what a majority has.

For each follower ``match_index < next_index`` holds: entries up to ``match_index`` are on its disk and equal to the
leader's, ``next_index`` is the next one to send. A LeaderState lives as long as one leadership, so nothing learned in
one term counts in another.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection
from math import inf

from ..log.configuration import AddLearner, Change, Demote, Promote
from ..log.group_log import GroupLog
from ..messages import AppendAck, AppendEntries, Commit, Offer, TimeoutNow
from ..settings import RaftSettings
from .membership import Membership

_log = logging.getLogger(__name__)

Send = Callable[[str, AppendEntries | Commit | Offer | TimeoutNow], bool]
Shared = dict[tuple[int, bool], AppendEntries | Offer]

TURN_MESSAGES_MAX = 2
"""Most messages with entries that a leader reads from its log in one turn of the loop: that takes 8 ms where they are
of the largest size or have the most entries. Followers on a node that comes back lack a whole window in each group;
other groups, and clients, go on between.
"""
COMMIT_NOTICE_S = 0.02
"""A leader tells its followers of a commit after this time. In a stream of entries it does not: the next entries tell
it, or a heartbeat. Entries are a stream if they follow the ones before within a heartbeat period.
"""
IN_SYNC_ENTRIES_MAX = 1000
"""A follower that lacks more committed entries than this is not in sync."""
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
        """For a learner and the transferee: the log's end when the present round began (0: no round), and the time."""
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

        A few small entries wait until the message before them is answered, and are then sent together: with many groups
        on a node, messages cost more than entries.
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


class LeaderState:
    """One leadership: the term, the progress of each follower, and when the next heartbeat is due."""

    def __init__(self, log: GroupLog, membership: Membership, settings: RaftSettings, send: Send, now: float) -> None:
        self.term: int = log.term
        self.no_op_index: int = log.last_index + 1
        self.followers: dict[str, Progress] = {}
        self.round: int = 0
        """The round of the latest message. Each ack names the round of a message, so it was sent after that message."""
        self.transferee: str | None = None
        """The voter that the leadership is being transferred to; None if there is no transfer."""
        self.pushed_at: float = -inf
        """When the transferee was last asked to campaign."""
        self.overdue_at: float = inf
        """From this time on proposals no longer wait for a transferee that was asked to campaign and does not lead."""
        self.is_settled: bool = False
        """Whether this node and all followers are voters with the configured disks: no member is left to change."""
        self.beat_is_wanted: bool = True
        """Whether the next ``broadcast`` begins a round of empty messages: heartbeats."""
        self.has_more: bool = False
        """Whether the last ``broadcast`` left entries that can be sent at once, without an answer first."""
        self.beat_at: float = now
        """When the next heartbeat is due."""
        self.notice_at: float = inf
        """When followers that lack the commit index must be sent it; infinity if none does, or entries will tell it."""
        self._log = log
        self._membership = membership
        self._settings = settings
        self._heartbeat_s = settings.heartbeat_ms / 1000
        self._quick_s = settings.election_timeout_ms_min / 1000
        self._patience_s = settings.election_timeout_ms_max / 1000
        self._newest_sent = 0  # the newest entry that any follower was sent
        self._entries_at = -inf  # when that entry was first sent
        self._notice_s = COMMIT_NOTICE_S
        self._send = send
        self.reconfigure(now)

    def reconfigure(self, now: float) -> None:
        """Take over a new configuration: forget members that left, and begin to probe the logs of new ones."""
        configuration = self._membership.configuration
        known, self.followers = self.followers, {}
        for node_id, incarnation in configuration.members.items():
            if node_id == self._membership.node_id:
                continue
            follower = known.get(node_id)
            if follower is None:
                there = self._membership.peers.get(node_id)
                follower = Progress(node_id, self._log.last_index + 1, there, self.round, now)
            follower.member_incarnation = incarnation
            follower.is_voter = node_id in configuration.voters
            self.followers[node_id] = follower
        self._voters = [follower for follower in self.followers.values() if follower.is_voter]
        self._is_voter = self._membership.is_voter
        self._look_at_disks()
        self._majority_others = len(configuration.voters) // 2

    def _look_at_disks(self) -> None:
        """Recompute what depends on the members and their disks: who is connected, who counts, ``is_settled``."""
        followers = self.followers.values()
        self._connected = [follower for follower in followers if follower.connected]
        self._counting = [follower for follower in self._voters if follower.counts]
        known = all(each.incarnation in {None, each.member_incarnation} for each in followers)
        self.is_settled = self._is_voter and known and len(self._voters) == len(followers)

    def broadcast(self, commit_index: int, now: float) -> None:
        """Send every follower the entries it lacks, as far as its window allows; and an empty message, if a heartbeat
        is wanted. Each follower gets one message in any case; beyond these, at most TURN_MESSAGES_MAX messages are read
        from the log, and ``has_more`` says whether more could be sent.

        A follower answers an empty message at once, one with entries only after its disk sync. If it lacks entries that
        are gone from this log, its empty message is the offer of a checkpoint.
        """
        followers, last_index, base_index = self._connected, self._log.last_index, self._log.base_index
        if not (self.beat_is_wanted or self.has_more or self._notice_s < inf or self.notice_at < inf) and all(
            follower.next_index > last_index for follower in followers
        ):
            return  # in a stream of entries a commit gives it nothing to do
        beat, self.beat_is_wanted = self.beat_is_wanted, False
        self.has_more = False
        if not beat and self._put_next(followers, commit_index, now):
            return
        shared: Shared = {}
        for follower in self._with_room(followers) if self._membership.full_disks else followers:
            is_first = True  # each follower gets a message, or the last would wait until the first has caught up
            while base_index < follower.next_index <= last_index:
                if not follower.may_be_sent(self._settings, self._is_little):
                    break
                is_read = (follower.next_index, False) in shared
                if not is_first and not is_read and len(shared) >= TURN_MESSAGES_MAX:
                    self.has_more = True
                    break
                if not self._put(follower, commit_index, now, shared, empty=False):
                    break
                is_first = False
        if beat:
            for follower in followers:
                self._put(follower, commit_index, now, shared, empty=True)
            self.beat_at = now + self._heartbeat_s
        self._plan_notice(commit_index, now)

    def _put_next(self, followers: list[Progress], commit_index: int, now: float) -> bool:
        """Send all followers the last entry, as ``broadcast`` does, if it is all that each lacks and nothing is in
        flight, as is nearly always the case with many groups on a node. Otherwise do nothing, and return False.
        """
        log, send, index = self._log, self._send, self._log.last_index
        if index <= log.base_index or not followers or self._membership.full_disks:
            return False
        for follower in followers:
            if follower.next_index != index or follower.probing or follower.window:
                return False
        prev_index = index - 1
        entries = log.read(index, 0)
        size = len(entries[0][2])
        self.round += 1
        self._note_stream(index, now)
        message = AppendEntries(self.term, commit_index, prev_index, log.term_at(prev_index), self.round, entries)
        for follower in followers:
            if send(follower.node_id, message):
                follower.sent_commit, follower.sent_at, follower.probed_index = commit_index, now, prev_index
                follower.sent(index, size)
        self._plan_notice(commit_index, now)
        return True

    def _plan_notice(self, commit_index: int, now: float) -> None:
        """Set ``notice_at`` if a follower was not sent this commit index: it gets a Commit then, or entries before."""
        for follower in self._connected:
            if follower.sent_commit < commit_index:
                self.notice_at = min(self.notice_at, now + self._notice_s)
                return
        self.notice_at = inf

    def _note_stream(self, index: int, now: float) -> None:
        """Note that the entry at ``index`` is about to be sent, and whether it continues a stream (COMMIT_NOTICE_S)."""
        if index > self._newest_sent:
            is_stream = now - self._entries_at <= self._heartbeat_s
            self._notice_s = inf if is_stream else COMMIT_NOTICE_S
            self._newest_sent, self._entries_at = index, now

    def _with_room(self, followers: list[Progress]) -> list[Progress]:
        """The followers to send entries to: those without a full disk if they and this node are a majority, else all.
        In the latter case nodes take no more appends; commands still proposed are small, or make room, as trims do.

        A follower that is far behind, or needs a checkpoint, does not count for that majority: it may take minutes to
        catch up, and until then nothing would be committed. The transferee is sent entries even if its disk is full: it
        cannot take over without them, and once it is near, all proposals wait for the transfer.
        """
        full, end = self._membership.full_disks - {self.transferee}, self._log.last_index
        able = [follower for follower in followers if follower.node_id not in full]
        votes = self._is_voter + sum(follower.counts and self._is_sent_nearly_all(follower, end) for follower in able)
        return able if votes > self._majority_others else followers

    def _is_sent_nearly_all(self, follower: Progress, index: int) -> bool:
        """Whether a follower needs no checkpoint, and at most IN_SYNC_ENTRIES_MAX entries up to ``index`` are still to
        be sent to it. ``next_index`` decides, since ``match_index`` is 0 until the follower has answered in this term.
        """
        return follower.next_index > max(self._log.base_index, index - IN_SYNC_ENTRIES_MAX)

    def needs_room_without(self, node_id: str) -> tuple[str, ...]:
        """The voters that every commit would have to wait for if ``node_id`` were no voter: their disks are full, they
        are far behind, and the other voters are no majority without them. Empty: there are none.
        """
        end, left = self._log.last_index, [each for each in self._voters if each.node_id != node_id]
        full = [each for each in left if each.node_id in self._membership.full_disks]
        lack = {each.node_id for each in full if not self._is_sent_nearly_all(each, end)}
        stays = self._is_voter and node_id != self._membership.node_id
        able = stays + sum(each.connected and each.counts and each.node_id not in lack for each in left)
        return () if 2 * able > stays + len(left) else tuple(sorted(lack))

    def look_at_clock(self, commit_index: int, now: float) -> bool:
        """Send heartbeats if they are due: a follower was sent nothing, or answered nothing, for a heartbeat period.
        Returns whether they were sent. They are sent at once and not in ``progress``: behind the work of other groups,
        such as the first appends to hundreds of them, they would come later than an election timeout.
        """
        if now >= self.beat_at:
            self.beat_at = self.quiet_at(self._heartbeat_s)
            self.beat_is_wanted = self.beat_is_wanted or now >= self.beat_at
        if not self.beat_is_wanted:
            return False
        self.broadcast(commit_index, now)
        return True

    def puts_off_beat(self, now: float) -> bool:
        """Whether a heartbeat that is due is not needed, nor anything else: every follower was sent a message, and has
        answered, within the last heartbeat period. Then ``beat_at`` is set to the end of that period.
        """
        if self.beat_is_wanted or not self.is_settled or len(self._connected) < len(self.followers):
            return False
        quiet_at = self.quiet_at(self._heartbeat_s)
        if now >= quiet_at:
            return False
        self.beat_at = quiet_at
        return True

    def tell_commit(self, commit_index: int, now: float) -> None:
        """Send the commit index to the followers that lack it. A follower that is being probed learns it from its next
        heartbeat.
        """
        self.notice_at = inf
        message = Commit(self.term, commit_index)
        for follower in self.followers.values():
            lacks_it = follower.connected and follower.sent_commit < commit_index
            if lacks_it and not follower.probing and self._send(follower.node_id, message):
                follower.sent_commit, follower.sent_at = commit_index, now

    def quiet_at(self, period_s: float) -> float:
        """The time at which a connected follower will have been sent nothing, or answered nothing, for ``period_s``."""
        since = [min(each.sent_at, each.contact) for each in self.followers.values() if each.connected]
        return min(since, default=-inf) + period_s

    def _is_little(self, first: int) -> bool:
        """Whether the entries from ``first`` on are few, and small altogether."""
        log = self._log
        if first <= log.base_index or log.last_index + 1 - first >= FEW_ENTRIES:
            return False
        return sum(len(log.payload_at(index)) for index in range(first, log.last_index + 1)) < FEW_BYTES

    def _put(self, follower: Progress, commit_index: int, now: float, shared: Shared, *, empty: bool) -> bool:
        """Send a follower one message; False if it surely will not arrive. Followers with the same ``next_index`` share
        one message (``shared``), so it is read and encoded once.
        """
        log, next_index = self._log, follower.next_index
        message = shared.get((next_index, empty))
        if message is None:
            self.round += 1
            if next_index <= log.base_index:
                message = Offer(self.term, commit_index, log.origin.index, log.origin.term, self.round)
            else:
                entries = [] if empty else log.read(next_index, self._settings.message_bytes_max)
                if entries:
                    self._note_stream(entries[-1][0], now)
                prev = next_index - 1
                message = AppendEntries(self.term, commit_index, prev, log.term_at(prev), self.round, entries)
            shared[next_index, empty] = message
        if not self._send(follower.node_id, message):
            return False
        follower.sent_commit, follower.sent_at = commit_index, now
        if isinstance(message, Offer):
            follower.offered_round = message.round
        else:
            follower.probed_index = message.prev_index
            if message.entries:
                size = sum(len(payload) for _, _, payload in message.entries)
                follower.sent(message.entries[-1][0], size)
        return True

    def lags(self, commit_index: int) -> dict[str, int]:
        """How many committed entries each follower lacks on its disk, by node id, as far as is known: a follower that
        has not answered in this term lacks at least the entries of this term.
        """
        known = self.no_op_index - 1
        return {name: max(0, commit_index - (each.match_index or known)) for name, each in self.followers.items()}

    def out_of_sync(self, commit_index: int) -> list[str]:
        """The members that could not lead now: disconnected, with another disk than the configured one, not voters yet,
        more than IN_SYNC_ENTRIES_MAX committed entries behind, or in need of a checkpoint.
        """
        lags = self.lags(commit_index)
        return [
            name
            for name, each in self.followers.items()
            if not (each.connected and each.counts)
            or lags[name] > IN_SYNC_ENTRIES_MAX
            or not self._is_sent_nearly_all(each, commit_index)
        ]

    def answered(self, node_id: str, ack: AppendAck, now: float) -> None:
        """Handle an ack of this term. A refusal sets ``next_index`` back, once for all that was in flight."""
        if ack.success:
            self.acked(node_id, ack.next_index - 1, ack.round, now)
        elif (follower := self.followers.get(node_id)) is not None:
            follower.contact = now
            follower.round = max(follower.round, ack.round)
            # An offer is answered with what is committed there, though more may be on disk, and acked meanwhile.
            is_late = ack.round <= follower.offered_round and follower.next_index > self._log.base_index
            if ack.round > follower.stale_round and not is_late:
                follower.rewind(self._retry_index(follower, ack.next_index), self.round)

    def acked(self, node_id: str, index: int, round_: int, now: float) -> None:
        """Note that a follower has answered ``round_``, and has all entries up to ``index`` on disk."""
        follower = self.followers.get(node_id)
        if follower is None:
            return
        follower.contact = now
        follower.round = max(follower.round, round_)
        if round_ >= follower.first_round:
            assert index <= self._log.last_index, "acked what was never sent"
            follower.matched(index)
            if not follower.is_voter or node_id == self.transferee:
                follower.end_round(self._log.last_index, now, self._quick_s)

    def _retry_index(self, follower: Progress, hint: int) -> int:
        if follower.next_index <= self._log.base_index:  # the answer to an offer: the end of its committed entries
            return min(max(hint, follower.match_index + 1), self._log.last_index + 1)
        if follower.probing and hint == follower.probed_index + 1:
            return max(self._log.run_start(follower.probed_index), follower.match_index + 1)
        return min(hint, self._log.last_index + 1)

    def connected(self, node_id: str, incarnation: int, now: float) -> None:
        """Handle a new connection to a follower: what was in flight on the one before is lost."""
        follower = self.followers[node_id]
        if follower.incarnation not in {None, incarnation}:
            self.followers.pop(node_id)
            self.reconfigure(now)
            return
        follower.incarnation, follower.connected = incarnation, True
        self._look_at_disks()
        self._start_over(follower)

    def disconnected(self, node_id: str) -> None:
        """Handle the loss of a follower's connection, with all that was in flight on it."""
        follower = self.followers[node_id]
        follower.connected = False
        self._look_at_disks()
        self._start_over(follower)

    def _start_over(self, follower: Progress) -> None:
        follower.rewind(follower.match_index + 1 if follower.match_index else follower.next_index, self.round)

    def next_change(self) -> Change | None:
        """The next change that a leader makes by itself, or None: a voter whose disk was wiped becomes a learner, a
        learner that has caught up becomes a voter.
        """
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

    def has_caught_up(self, follower: Progress) -> bool:
        """Whether a learner, or the transferee, has all entries up to the no-op of this leadership on disk, and lacks
        at most one message of entries, or a window if its rounds are quick: under load, on a long link, it always lacks
        more than one message. It must have the configuration that names it: a node that does not know that it is a
        member does not vote.
        """
        log = self._log
        least = max(self.no_op_index, log.base_index, log.configuration_index)
        if not follower.connected or follower.probing or follower.match_index < least:
            return False
        few, many = self._settings.message_bytes_max, self._settings.window_bytes_max
        return log.fits(follower.match_index + 1, max(few, many) if follower.keeps_up else few)

    def transfer_to(self, node_id: str | None, others: Collection[str]) -> None:
        """Begin to transfer the leadership to ``node_id``, or if None to the voter with the longest matching log.

        When the transferee has nearly caught up, new proposals wait until it leads, or for an election timeout after it
        was asked to campaign: its disk may hang. Raises ValueError if it is none of ``others``, the other voters.
        """
        furthest = self.furthest()
        if node_id is None and furthest is not None:
            node_id = furthest.node_id
        if node_id not in others:
            raise ValueError(f"{node_id} is no voter to hand over to" if node_id else "no other voter is connected")
        self.transferee, self.pushed_at, self.overdue_at = node_id, -inf, inf
        for follower in self.followers.values():
            follower.goal, follower.keeps_up = 0, False  # the transferee may have been a learner before

    def push_transferee(self, applied_index: int, now: float) -> None:
        """Ask the transferee to campaign (TimeoutNow) once it has every entry, and again each heartbeat period:
        messages get lost. All entries must be applied here, too: proposals that are not applied end as Unknown with
        this leadership.
        """
        transferee = self.followers.get(self.transferee or "")
        if transferee is None or now < self.pushed_at + self._heartbeat_s:
            return
        if transferee.match_index == applied_index == self._log.last_index:
            self.pushed_at, self.overdue_at = now, min(self.overdue_at, now + self._patience_s)
            self._send(transferee.node_id, TimeoutNow(self.term))

    def transferee_is_near(self, now: float) -> bool:
        """Whether a leadership transfer is under way that is not overdue, and whose transferee has nearly caught up."""
        transferee = None if self.transferee is None else self.followers.get(self.transferee)
        return transferee is not None and now < self.overdue_at and self.has_caught_up(transferee)

    # Values that a majority of the voters has reached. Learners, and voters with another disk, do not count.

    def majority_index(self) -> int:
        """The highest index that a majority has on disk; this node counts with its own durable index."""
        if self._is_voter and self._majority_others == 1 and len(self._counting) == 2:  # as nearly always: of three
            one, other = self._counting[0].match_index, self._counting[1].match_index
            low, high = (one, other) if one < other else (other, one)
            return min(max(low, self._log.durable_index), high)
        return int(self._of_majority([each.match_index for each in self._counting], self._log.durable_index, 0))

    def waits_for_disk(self) -> bool:
        """Whether followers that make a majority with this node have more on disk than it: its next sync may commit."""
        durable_index = self._log.durable_index
        if self._majority_others:  # most often none of them has
            for each in self._counting:
                if each.match_index > durable_index:
                    break
            else:
                return False
        matches: list[float] = [each.match_index for each in self._counting]
        return self._of_majority(matches, inf, 0) > durable_index

    def committed(self, commit_index: int) -> int:
        """The commit index that follows from what a majority has on disk; it is ``commit_index`` at least.

        Only an entry of the leader's own term is committed by counting copies; those before it are committed with it.
        """
        index = self.majority_index()
        return index if index > commit_index and self._log.term_at(index) == self.term else commit_index

    def majority_round(self) -> float:
        """The latest round that a majority, this node counted, has answered."""
        return self._of_majority([each.round for each in self._counting], inf, 0)

    def majority_contact(self) -> float:
        """The latest time since which a majority, this node counted, has answered."""
        heard = [each.contact for each in self._voters if each.counts or each.incarnation is None]
        return self._of_majority(heard, inf, -inf)

    def is_cut_off(self, since: float, heard_at: Callable[[str], float]) -> bool:
        """CheckQuorum: whether no majority was heard since this time. Without an answer, bytes from the follower's node
        count (``heard_at``): on a slow link, messages and answers wait behind long frames. A node that receives nothing
        from this one drops the connection, so its bytes also show that it receives ours.
        """
        if self.majority_contact() >= since:
            return False
        for follower in self.followers.values():
            follower.contact = max(follower.contact, heard_at(follower.node_id))
        return self.majority_contact() < since

    def _of_majority(self, values: list[float], ours: float, otherwise: float) -> float:
        """The largest value that a majority of the voters reaches; ``otherwise`` if too few ``values`` are known.
        ``ours`` counts if this node is a voter.
        """
        if self._is_voter:
            values.append(ours)
        values.sort(reverse=True)
        return values[self._majority_others] if len(values) > self._majority_others else otherwise

    def has_news(self, commit_index: int) -> bool:
        """Whether there may be something to commit, to send, to change or to transfer. With many groups on a node, most
        acks change nothing: an earlier ack has completed the majority.
        """
        if self.beat_is_wanted or not self.is_settled or self.transferee is not None:
            return True
        last_index = self._log.last_index
        for follower in self._voters:  # all followers, as ``is_settled`` says
            if follower.next_index <= last_index:
                return True
        return commit_index < last_index and self.majority_index() > commit_index

    def forgive(self, seconds: float) -> None:
        """Subtract ``seconds`` from the followers' silence: this node stood still, and sent them nothing."""
        for follower in self.followers.values():
            follower.contact += seconds

    def furthest(self) -> Progress | None:
        """The connected voter with the longest matching log."""
        there = [follower for follower in self._voters if follower.connected and follower.counts]
        return max(there, key=lambda follower: follower.match_index, default=None)

"""Quiescence: an idle group sends no heartbeats, and its timer runs for ten seconds or more, so that a node can hold
many groups.

A leader whose followers have every entry and know that it is committed tells them to quiesce, and stops its heartbeats.
From then on its followers count it as heard while its node's heartbeats arrive (liveness.py), and it counts them
likewise. Any event wakes a member: a message, a proposal, a read, a peer that falls silent, is lost or comes back; and,
as a safety net, time (QUIESCENT_S_MAX). While nothing has changed the leader renews its Quiesce before that: one
message to each follower, at a whole second, with all other groups that renew then. No safety property depends on
quiescence: a read still asks a majority, a vote still waits for its disk.

This file decides when a group may quiesce and until when. RaftNode sends the messages and wakes.
"""

from math import ceil

from ..log.group_log import GroupLog
from ..ports import NodePorts
from ..settings import RaftSettings
from .leader import LeaderState, Progress
from .membership import Membership

QUIET_BEATS = 2
"""The number of heartbeats in a row that must find the group settled before the leader quiesces it."""
QUIESCENT_S_MIN, QUIESCENT_S_MAX = 20.0, 40.0
"""Seconds: a follower wakes by itself after a time drawn between these two, at a whole second of its clock."""
RENEWAL_S_MIN, RENEWAL_S_MAX = 10.0, 18.0
"""Seconds: a leader renews its Quiesce after a time drawn between these two, at a whole second, before any follower
wakes.
"""


class Quiescence:
    """Whether this member of a group is quiescent, and whether its leader may let the group quiesce."""

    def __init__(self, log: GroupLog, membership: Membership, settings: RaftSettings, ports: NodePorts) -> None:
        self.is_quiescent: bool = False
        self.ends_at: float = float("inf")
        """When this follower wakes by itself, or this leader renews its Quiesce."""
        self._quiet_beats = 0
        self._log = log
        self._membership = membership
        self._timeout_s = settings.election_timeout_ms_min / 1000
        self._ports = ports

    def begin(self, *, is_leader: bool) -> None:
        """Become quiescent, until a whole second of the clock, so that many groups wake their node at once."""
        self.is_quiescent = True
        shortest, longest = (RENEWAL_S_MIN, RENEWAL_S_MAX) if is_leader else (QUIESCENT_S_MIN, QUIESCENT_S_MAX)
        self.ends_at = ceil(self._ports.time() + shortest + (longest - shortest) * self._ports.rng())

    def end(self) -> None:
        """End quiescence, and begin to count QUIET_BEATS anew."""
        self.is_quiescent = False
        self._quiet_beats = 0

    def wake(self, leading: LeaderState) -> None:
        """Make a leader whose quiescence has ended send a heartbeat now, and set each follower's last contact to the
        last sign of life of its node. ``beat_at`` becomes the present: a heartbeat that was due before the quiescence
        would look like a stall of this node, and as much of the followers' silence would be forgiven.
        """
        leading.beat_is_wanted, leading.beat_at = True, self._ports.time()
        for follower in leading.followers.values():
            follower.contact = max(follower.contact, self._ports.heard_at(follower.node_id))

    def is_due(self, leading: LeaderState, commit_index: int) -> bool:
        """Whether a leader whose heartbeat is due should quiesce the group instead. Called once a heartbeat period."""
        is_heard = leading.majority_contact() >= self._ports.time() - self._timeout_s
        self._quiet_beats = self._quiet_beats + 1 if is_heard and self.is_settled(leading, commit_index) else 0
        return self._quiet_beats > QUIET_BEATS

    def is_settled(self, leading: LeaderState, commit_index: int) -> bool:
        """Whether ``match_index == commit_index == last_index`` holds for all present members, they are a majority and
        were sent that commit index, and no heartbeat, transfer or change of members is wanted.
        """
        last_index = self._log.last_index
        if commit_index < last_index or leading.beat_is_wanted or leading.transferee is not None:
            return False
        present = self.present(leading)
        here = self._membership.is_voter + sum(follower.counts for follower in present)
        return (
            2 * here > len(self._membership.configuration.voters)
            and all(f.match_index == last_index and not f.probing for f in present)
            and all(f.sent_commit == last_index for f in present)
            and leading.next_change() is None
        )

    def present(self, leading: LeaderState) -> list[Progress]:
        """The followers whose nodes are connected and not silent. The others catch up when they come back."""
        since = self._ports.time() - self._timeout_s
        return [f for f in leading.followers.values() if f.connected and self._ports.heard_at(f.node_id) > since]

    def leader_heard_at(self, leader: str) -> float:
        """The time at which a follower that wakes counts its leader as heard: the last sign of life of the leader's
        node, or if that is longer ago, one shortest election timeout ago; now, if the node is not connected.
        """
        now, at = self._ports.time(), self._ports.heard_at(leader)
        return now if at == float("-inf") else max(now - self._timeout_s, at)

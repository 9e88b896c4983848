"""Rest: a group in which nothing happens sends nothing and waits for nothing, however many there are on a node.

A leader whose followers have everything, and know what is committed, tells them to rest and stops its heartbeats. From
then on its followers count it as heard while its node gives signs of life (pulse.py), and it counts them likewise.
Whatever happens wakes a member: a message, a proposal, a read, a peer that falls silent, is lost or comes back; and, as
a safety net, time. Nothing that must not go wrong depends on it: a read still asks a majority, a vote still its disk.
"""

from typing import Any

from .follower import Follower
from .leading import Leading
from .member import Member
from .messages import AppendAck, RaftMessage, Rest, Wake

QUIET_BEATS = 2
"""Heartbeats without news before a leader rests."""
REST_S_MIN, REST_S_MAX = 20.0, 40.0
"""Rest ends by itself after a time drawn between the two."""


class Hibernating(Member):
    """A member that rests when there is nothing to do."""

    is_resting: bool = False
    _wake_at = float("inf")
    _quiet_beats = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handlers |= {Rest: self._on_rest, Wake: self._on_wake}

    # What wakes.

    @property
    def next_tick(self) -> float:
        """When ``tick`` has something to do, if nothing happens before."""
        if self.is_resting:
            return self._wake_at
        if self.leading is None:
            return self._election.deadline
        return min(self._beat_at, self._notice_at)

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """A message of another node. If it wakes a follower, the leader, who may have got none, must beat again."""
        was_resting = self.is_resting
        if not isinstance(message, Rest):
            self.wake()
        super().receive(node_id, message)
        if was_resting and not self.is_resting and node_id != self.leader:
            self._wake_leader()

    def want_round(self) -> int:
        """The next ``progress`` begins a round; answers its number. For a leader only."""
        self.wake()
        return super().want_round()

    def progress(self) -> bool:
        """Do what has become possible; answers whether it must be called again."""
        more = super().progress()
        if self.is_resting and self.leading is not None and not self._is_settled(self.leading):
            self.wake()
        return more

    def peer_down(self, node_id: str, spread_s: float = 0.0, turn: int = 0) -> None:
        """A connection broke."""
        if self.leader == node_id:
            self.wake()
        super().peer_down(node_id, spread_s, turn)

    def peer_silent(self, node_id: str) -> None:
        """A connected node gives no sign of life: if it leads, it is missed from when it gave the last one."""
        if self.leader == node_id:
            self.wake()

    def peer_heard(self, node_id: str) -> None:
        """A node that was silent is not any more: it may have missed that its leader rests."""
        if self.leading is not None and node_id in self.leading.followers:
            self.wake()

    def tick(self) -> None:
        """Time has passed: rest, or end the rest, or do what is due."""
        if self.is_resting:
            self.wake()
            self._wake_leader()
        elif not self._lies_down():
            super().tick()

    def wake(self) -> None:
        """Go on as if the leader's, or the followers', last heartbeat or answer had been their nodes' sign of life."""
        if not self.is_resting:
            return
        self.is_resting = False
        self._quiet_beats = 0
        if self.leading is not None:
            self._beat_is_wanted = True
            for follower in self.leading.followers.values():
                follower.contact = max(follower.contact, self._ports.heard_at(follower.node_id))
        elif self.leader is not None:
            now, at = self._ports.clock(), self._ports.heard_at(self.leader)
            timeout_s = self.settings.election_timeout_ms_min / 1000
            self._election.heard_leader(now if at == float("-inf") else max(now - timeout_s, at))

    def _wake_leader(self) -> None:
        """A sign of life of a follower wakes the leader, whose heartbeat wakes the others."""
        if self.leading is None:
            self._following.acknowledge(beat=True)

    def _follow(self, term: int, leader: Any) -> None:
        """A leader that stops while its followers rest tells them: nothing else would wake them."""
        if self.is_resting and self.leading is not None:
            for follower in self.leading.followers.values():
                if follower.connected:
                    self._gate.post(follower.node_id, Wake(self.term))
        self.wake()
        super()._follow(term, leader)

    def _on_wake(self, node_id: str, message: Wake) -> None:
        """Our leader is none any more."""
        if message.term == self.term and self.leader == node_id:
            self.forget_leader()
            self._election.hurry()

    # What lets rest.

    def _lies_down(self) -> bool:
        """If a heartbeat is due and there was no news for some, tell the followers to rest, and do so."""
        leading, now = self.leading, self._ports.clock()
        if leading is None or now < self._beat_at:
            return False
        is_heard = leading.majority_contact() >= now - self.settings.election_timeout_ms_min / 1000
        self._quiet_beats = self._quiet_beats + 1 if is_heard and self._is_settled(leading) else 0
        if self._quiet_beats <= QUIET_BEATS:
            return False
        message = Rest(self.term, self.commit_index)
        if not all(self._gate.post(follower.node_id, message) for follower in self._present(leading)):
            return False
        self._lie_down()
        return True

    def _lie_down(self) -> None:
        self.is_resting = True
        self._wake_at = self._ports.clock() + REST_S_MIN + (REST_S_MAX - REST_S_MIN) * self._ports.rng()

    def _present(self, leading: Leading) -> list[Follower]:
        """Followers that are connected and give signs of life. The others are looked after when they come back."""
        since = self._ports.clock() - self.settings.election_timeout_ms_min / 1000
        return [f for f in leading.followers.values() if f.connected and self._ports.heard_at(f.node_id) > since]

    def _is_settled(self, leading: Leading) -> bool:
        """Whether nothing is under way, and a majority is present of which everybody has and knows everything."""
        last_index = self.journal.last_index
        if self.commit_index < last_index or self._beat_is_wanted or leading.heir is not None:
            return False
        present = self._present(leading)
        here = self.membership.is_voter + sum(follower.counts for follower in present)
        return (
            2 * here > len(self.membership.configuration.voters)
            and all(f.match_index == last_index and not f.probing for f in present)
            and all(f.told_commit == last_index for f in present)
            and leading.next_change() is None
        )

    def _on_rest(self, node_id: str, message: Rest) -> None:
        """Rest, if all that is committed at the leader is here and this is all there is; otherwise say where we are."""
        if message.term < self.term:
            self._gate.post(node_id, AppendAck(self.term, False, self.journal.last_index + 1, 0))
            return
        self.heard_leader(node_id)
        self.learn_commit(min(message.commit_index, self._following.verified_index), message.commit_index)
        if self.commit_index == message.commit_index == self.journal.last_index:
            self._lie_down()
        else:
            self.wake()
            self._following.acknowledge(beat=True)

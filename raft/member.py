"""A member of a group: the engine, driven by events.

The events are a message, a connection, a tick, "the disk moved on" and a proposal. After each, or after several of
them, the owner calls ``progress``. An exception that leaves it is fatal for the node.
"""

from .messages import AppendAck, AppendEntries, RaftMessage
from .ports import Proposal
from .steering import Steering


class Member(Steering):
    """One replica's consensus, for an owner that has a clock, connections and a disk."""

    @property
    def role(self) -> tuple[object, ...]:
        """Whether this node leads, who does, and the term: for comparing."""
        return self.leading is None, self._SyncObj__raftLeader, self._SyncObj__raftCurrentTerm

    def receive(self, node_id: str, message: RaftMessage) -> None:
        """A message of another node. In most, entries and acks of the present term, there is nothing to compare."""
        kind = type(message)
        if (kind is AppendAck or kind is AppendEntries) and message.term == self._SyncObj__raftCurrentTerm:
            self._handlers[kind](node_id, message)
        else:
            super().receive(node_id, message)

    def progress(self) -> bool:
        """Do what has become possible: send what waited for the disk; append, send, commit and apply.

        Answers whether it must be called again, because applies are left to do.
        """
        self._gate.release()
        if self.leading is None and self._SyncObj__raftLeader is None:
            self._voting.count_own_vote()
        if self.leading is None:
            self._following.acknowledge(beat=False)
        more = self._onTick()
        if self.leading is not None:
            self._leave()
            if self.leading is not None and self.leading.heir is not None:
                self._push_heir()
        return more

    def has_work(self) -> bool:
        """Whether ``progress`` would do anything after an ack, or after the disk moved on while this node leads.

        With many groups, most acks change nothing: the first of a majority did.
        """
        return self.leading is None or self._beat_is_wanted or self.leading.has_news(self.commit_index)

    def propose(self, command: bytes, proposal: Proposal) -> None:
        """Queue a command: the next ``progress`` appends it, or rejects it if this node does not lead then."""
        self._queue.append((command, proposal))

    def want_round(self) -> int:
        """The next ``progress`` begins a round of empty messages; answers its number. For a leader only."""
        assert self.leading is not None
        self._beat_is_wanted = True
        return self.leading.round + 1

    def peer_up(self, node_id: str, incarnation: int) -> None:
        """A connection came up, to a node with this disk."""
        self.membership.peers[node_id] = incarnation
        if self.leading is not None and node_id in self.leading.followers:
            self.leading.connected(node_id, incarnation, self._ports.clock())
            self._beat_is_wanted = True

    def peer_down(self, node_id: str, spread_s: float = 0.0, turn: int = 0) -> None:
        """A connection broke: what was in flight on it is lost, and if it led to the leader, that one may be gone: then
        elections of so many groups are due that they should be spread over ``spread_s``, and this node asks as the
        first, or after so many others (``turn``).
        """
        self.membership.peers.pop(node_id, None)
        if self.leading is not None and node_id in self.leading.followers:
            self.leading.disconnected(node_id)
        elif self.leader == node_id:
            self.forget_leader()
            self._election.take_turn(spread_s, turn)

    def go_first(self) -> None:
        """Ask for votes soon: leaders of new groups are where placement put the first founder, and there at once."""
        self._election.hurry()

    def tick(self) -> None:
        """Time has passed: ask for an election, step down or send heartbeats, where due."""
        now, leading = self._ports.clock(), self.leading
        if leading is None:
            if now >= self._election.deadline:
                self._voting.ask_around()
        elif leading.majority_contact() < now - self.settings.election_timeout_ms_min / 1000:
            self._follow(self.term, None)
        elif now >= self._notice_at:
            self._beat_is_wanted = True
        elif now >= self._beat_at:  # a heartbeat is for those who were told nothing, or are silent
            self._beat_at = leading.quiet_at(self.settings.heartbeat_ms / 1000)
            self._beat_is_wanted = now >= self._beat_at

    def stood_still(self, seconds: float) -> None:
        """Nothing ran here for so long: a leader that asked nothing may not blame its followers for their silence."""
        if self.leading is not None:
            self.leading.forgive(seconds)

    def abandon(self) -> None:
        """This replica stops: settle all that waits."""
        self._follow(self.term, None)
        self._checkCommandsToApply()

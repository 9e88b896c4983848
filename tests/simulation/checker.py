"""What must hold after every event of a simulated run, seen from outside with knowledge of every disk.

- One leader a term, with the votes of a majority of the voters in its log, each from the very disk that is named there;
  no voter votes twice. Of configurations, one at a time is open, and two in a row differ by one voter; a learner is
  promoted when it has caught up.
- Log matching: an (index, term) has one payload and one predecessor, everywhere and for ever.
- A leader's next_index never goes back on a success ack, and only rounds that it has begun are answered.
- A message leaves only when what it promises is durable on its sender, and to a node that knows its kind.
- A leader commits by counting copies only of an entry of its own term.
- What is committed is durable on a majority when it becomes so, never changes, and is in the log of every later leader.
- What is applied is what is committed, in order, without gaps; so applied sequences are prefixes of one another.
- A proposal is answered once and in time: a committed one is at its index, a rejected one never gets into the log.
- A quiescent leader has told every follower that it hears everything, and that one has it on disk.
- A read barrier that succeeds covers everything acknowledged before it was asked for.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from simulation.disk import FIRST_INDEX, View
from simulation.members import Members, is_new_term_settled

from stockade.raft.core.group import Committed, Group, NotLeader, Outcome, Overloaded, Rejected, Unknown
from stockade.raft.core.leader import LeaderState
from stockade.raft.core.pending import commands_of
from stockade.raft.log.configuration import CONFIGURATION, Configuration
from stockade.raft.log.origin import NO_TOMBSTONE
from stockade.raft.messages import AppendAck, PreVote, PreVoteReply, RaftMessage, RequestVote, VoteReply
from stockade.raft.net.codec import SINCE

if TYPE_CHECKING:
    from simulation.world import Process, World

LATE_S = 0.1


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True)
class Attempt:
    """A proposal of a client."""

    group_id: int
    payload: bytes
    process: "Process"
    deadline: float
    outcome: Outcome | None = None


@dataclass(slots=True)
class History:
    """What is known of one group."""

    leaders: dict[int, str] = field(default_factory=dict)
    entries: dict[tuple[int, int], tuple[bytes, int]] = field(default_factory=dict)
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    commit_terms: list[int] = field(default_factory=list)
    """The term in which each became committed: leaders of later terms have it."""
    places: dict[bytes, int] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    acked_index: int = 0

    @property
    def commit_index(self) -> int:
        return FIRST_INDEX - 1 + len(self.committed)


@dataclass(slots=True)
class Stream:
    """What a leader was seen to know of a follower."""

    next_index: int
    stale_round: int
    probing: bool
    connected: bool


@dataclass(slots=True)
class Seen:
    """A replica as it was after its last event. Only what differs from this is looked at after the next one."""

    commit_index: int = 1
    applied: int = 0
    led_term: int = 0
    is_quiescent: bool = False
    leading: LeaderState | None = None
    streams: dict[str, Stream] = field(default_factory=dict)


def _commands(payload: bytes) -> list[bytes]:
    return [] if payload.startswith(CONFIGURATION) else commands_of(payload)


class Checker:
    def __init__(self, world: "World") -> None:
        self.history: defaultdict[int, History] = defaultdict(History)
        self.attempts: list[Attempt] = []
        self.barriers_passed = 0
        self.violation: Violation | None = None
        self.members = Members(world)
        self._world = world
        self._seen: dict[Group, Seen] = {}

    def require(self, condition: bool, claim: str) -> None:
        """Raises, and remembers it: a callback's exception does not get far, and the event loop raises it again."""
        if not condition:
            self.violation = self.violation or Violation(f"at {self._world.now:.6f} s: {claim}")
            raise self.violation

    # What happens inside a node.

    def appended(self, process: "Process", group_id: int, index: int, term: int, payload: bytes) -> None:
        view = process.log.views[group_id]
        prev_term = view.term_at(index - 1)
        assert prev_term is not None
        known = self.history[group_id].entries.setdefault((index, term), (payload, prev_term))
        self.require(known == (payload, prev_term), f"{process.node_id}: two histories meet at {(index, term)}")
        group = process.groups.get(group_id)
        if payload.startswith(CONFIGURATION) and group is not None and group.is_leader:
            fault = self.members.fault(process, group_id, payload, group.commit_index)
            self.require(fault is None, f"{process.node_id} {fault}")
            self.members.began(group_id, index, group.commit_index)
            settled = is_new_term_settled(view, term, group.commit_index)
            self.require(settled, f"{process.node_id} changes the members before it has committed anything")

    def opened(self, group: Group) -> None:
        self._seen[group] = Seen()

    def failed(self, process: "Process", error: BaseException) -> None:
        self.require(False, f"{process.node_id} stopped itself: {error!r}")

    def check(self, process: "Process") -> None:
        """After every event of a process, whatever of it changed is compared with the history."""
        for group in process.groups.values():
            node, seen = group._node, self._seen[group]
            leading = node.leading
            led_term = 0 if leading is None else node.term
            applied = len(process.machines[group.group_id].applied)
            if (node.commit_index, applied, led_term) != (seen.commit_index, seen.applied, seen.led_term):
                self._check_changes(process, group, seen, led_term)
            if group.is_quiescent != seen.is_quiescent:
                seen.is_quiescent = group.is_quiescent
                if group.is_quiescent:
                    self._check_rest(process, group)
            if leading is not seen.leading:
                seen.leading, seen.streams = leading, {}
            if leading is not None:
                self._check_streams(process, leading, seen.streams)

    def _check_changes(self, process: "Process", group: Group, seen: Seen, led_term: int) -> None:
        if led_term not in {0, seen.led_term}:
            self._check_leader(process, group)
        self._check_commits(process, group, seen.commit_index)
        if led_term and group.commit_index > seen.commit_index:
            of_its_term = process.log.views[group.group_id].term_at(group.commit_index) == group.term
            self.require(of_its_term, f"{process.node_id} committed up to an entry of an older term")
        self._check_applied(process, group.group_id, seen.applied)
        seen.commit_index, seen.led_term = group.commit_index, led_term
        seen.applied = len(process.machines[group.group_id].applied)

    def _check_rest(self, process: "Process", group: Group) -> None:
        last_index = process.log.views[group.group_id].last_index
        self.require(
            group.commit_index == last_index, f"{process.node_id} is quiescent before {last_index} is committed"
        )
        leading = group._node.leading
        since = process.time() - self._world.settings.election_timeout_ms_min / 1000
        for follower in leading.followers.values() if leading is not None else ():
            if follower.connected and process.heard_at(follower.node_id) > since:
                disk = self._world.disk(follower.node_id, follower.incarnation or 0)  # perhaps lost a moment ago
                assert disk is not None
                has = max(disk.durable[group.group_id].last_index, disk.covered(group.group_id))
                self.require(
                    has >= last_index, f"{process.node_id} is quiescent, and {follower.node_id} lacks {last_index}"
                )

    def _check_leader(self, process: "Process", group: Group) -> None:
        history = self.history[group.group_id]
        leader = history.leaders.setdefault(group.term, process.node_id)
        self.require(leader == process.node_id, f"{leader} and {process.node_id} lead term {group.term}")
        won = self.members.has_won(group.group_id, group.term, process)
        self.require(won, f"{process.node_id} leads term {group.term} without the votes of a majority")
        view = process.log.views[group.group_id]
        for index, (entry, term) in enumerate(zip(history.committed, history.commit_terms, strict=True), FIRST_INDEX):
            if term < group.term and index >= view.first_index:
                self.require(view.entry(index) == entry, f"leader {process.node_id} lacks committed entry {index}")

    def _check_streams(self, process: "Process", leading: LeaderState, streams: dict[str, Stream]) -> None:
        """Only a refusal, or a connection that comes or goes, sets back what a leader sends next.

        Only its own rounds are answered.
        """
        for node, follower in leading.followers.items():
            if follower.round > leading.round:
                self.require(False, f"{process.node_id}: round {follower.round} was answered and not begun")
            before = streams.get(node)
            if before is None:
                streams[node] = Stream(follower.next_index, follower.stale_round, follower.probing, follower.connected)
                continue
            is_same = (follower.stale_round, follower.connected) == (before.stale_round, before.connected)
            if follower.next_index < before.next_index and is_same:
                claim = f"{process.node_id}: next_index of {node} went back to {follower.next_index}"
                self.require(before.probing, claim)
            before.next_index, before.stale_round = follower.next_index, follower.stale_round
            before.probing, before.connected = follower.probing, follower.connected

    def _check_commits(self, process: "Process", group: Group, before: int) -> None:
        history, view = self.history[group.group_id], process.log.views[group.group_id]
        self.require(group.commit_index >= before, f"{process.node_id}: the commit index went back")
        covered = self._world.disks[process.node_id].covered(group.group_id)
        for index in range(max(before + 1, FIRST_INDEX), group.commit_index + 1):
            entry = view.entry(index)
            if index < view.first_index or index <= covered:  # what was applied of a checkpoint is compared
                self.require(index <= history.commit_index, f"{process.node_id}: installed {index}, not committed")
                continue
            self.require(entry is not None, f"{process.node_id}: committed {index} is not in its log")
            assert entry is not None
            if index <= history.commit_index:
                known = history.committed[index - FIRST_INDEX]
                self.require(known == entry, f"{process.node_id}: committed entry {index} is another one")
            else:
                self._new_commit(process, group, history, index, entry)

    def _new_commit(
        self, process: "Process", group: Group, history: History, index: int, entry: tuple[int, bytes]
    ) -> None:
        copies, voters = self.members.copies(group.group_id, process, index, entry)
        self.require(2 * copies > voters, f"entry {index} was committed with {copies} copies on {voters} disks")
        if entry[1].startswith(CONFIGURATION):
            self.members.committed[group.group_id] = Configuration.of_entry(entry[1])
        for command in _commands(entry[1]):
            self.require(command not in history.refused, f"{command!r} was rejected, and committed at {index}")
            self.require(command not in history.places, f"{command!r} was committed before {index}")
            history.places[command] = index
        history.committed.append(entry)
        history.commit_terms.append(group.term)
        for node, rival in self._world.processes.items():
            other = rival.groups.get(group.group_id)
            if other is not None and other.is_leader and other.term > group.term:
                has = self._has(rival, group.group_id, index, entry)
                self.require(has, f"{node} leads a later term without committed entry {index}")

    def _has(self, process: "Process", group_id: int, index: int, entry: tuple[int, bytes]) -> bool:
        view = process.log.views[group_id]
        return index < view.first_index or view.entry(index) == entry

    def _check_applied(self, process: "Process", group_id: int, before: int) -> None:
        history, applied = self.history[group_id], process.machines[group_id].applied
        last = applied[before - 1][0] if before else FIRST_INDEX - 1
        for (index, term), rows in groupby(applied[before:], lambda row: row[:2]):
            self.require(index <= history.commit_index, f"{process.node_id}: {index} applied and not committed")
            known = history.committed[index - FIRST_INDEX]
            same = known[0] == term and _commands(known[1]) == [command for _, _, command in rows]
            self.require(same, f"{process.node_id}: {index} applied as another one")
            skipped = history.committed[last + 1 - FIRST_INDEX : index - FIRST_INDEX]
            is_gap = any(_commands(payload) for _, payload in skipped)
            self.require(not is_gap, f"{process.node_id}: gap before {index}")
            self.require(index > last, f"{process.node_id}: {index} applied again")
            last = index

    # What leaves a node.

    def sent(self, source: str, target: str, group_id: int, message: RaftMessage) -> None:
        """Whatever the message promises must be on the sender's disk by now; and the other end must know its kind."""
        connection, since = self._world.network.link(source, target).connection, SINCE.get(type(message), 0)
        assert connection is not None
        name = type(message).__name__
        self.require(connection.protocol >= since, f"{source}: {target} does not know a {name}")
        if isinstance(message, PreVote) or (isinstance(message, PreVoteReply) and message.granted):
            return
        durable = self._world.disks[source].durable[group_id]
        kept = self._world.disks[source].left.get(group_id, NO_TOMBSTONE).term
        self.require(
            max(durable.term, kept) >= message.term, f"{source}: {name} before its term {message.term} was on disk"
        )
        if isinstance(message, RequestVote) or (isinstance(message, VoteReply) and message.granted):
            candidate = source if isinstance(message, RequestVote) else target
            vote = (durable.term, durable.voted_for)
            self.require(vote == (message.term, candidate), f"{source}: {name} before the vote was on disk")
            once = self.members.voted(group_id, message.term, source, candidate)
            self.require(once, f"{source} voted twice in term {message.term}")
        if isinstance(message, AppendAck) and message.success:
            self._check_ack(source, target, group_id, durable, message)

    def _check_ack(self, source: str, target: str, group_id: int, durable: View, ack: AppendAck) -> None:
        index, covered = ack.next_index - 1, self._world.disks[source].covered(group_id)
        self.require(index <= max(durable.last_index, covered), f"{source}: acked {index} before it was on disk")
        leader = self._world.processes.get(target)
        group = leader.groups.get(group_id) if leader is not None else None
        is_its_leader = group is not None and group.is_leader and group.term == ack.term
        if leader is not None and is_its_leader and index > covered and index >= leader.log.views[group_id].first_index:
            same = leader.log.views[group_id].term_at(index) == durable.term_at(index)
            self.require(same, f"{source}: acked {index}, which is another entry than the leader's")

    # What clients see.

    def propose(self, process: "Process", group_id: int, command: bytes, timeout_s: float) -> Attempt:
        """A client proposes; commands are unique."""
        attempt = Attempt(group_id, command, process, process.time() + timeout_s)
        self.attempts.append(attempt)
        process.groups[group_id].submit(command, timeout_s, lambda outcome: self._settled(attempt, outcome))
        return attempt

    def _settled(self, attempt: Attempt, outcome: Outcome) -> None:
        self.require(attempt.outcome is None, f"{attempt.payload!r} was answered twice")
        attempt.outcome = outcome
        history = self.history[attempt.group_id]
        if isinstance(outcome, Committed):
            history.acked_index = max(history.acked_index, outcome.index)
            # The node may be the first to know: compare now what it committed.
            group = attempt.process.groups.get(attempt.group_id)
            if group is not None:
                self._check_commits(attempt.process, group, self._seen[group].commit_index)
            term, payload = history.committed[outcome.index - FIRST_INDEX]
            is_there = term == outcome.term and attempt.payload in _commands(payload)
            self.require(is_there, f"{attempt.payload!r} is not where acked")
            self.require(outcome.result == (outcome.index, attempt.payload), f"{attempt.payload!r}: wrong result")
        elif isinstance(outcome, Rejected | Overloaded):
            history.refused.add(attempt.payload)
            self.require(attempt.payload not in history.places, f"{attempt.payload!r} is committed, and was rejected")

    def barrier(self, process: "Process", group_id: int, timeout_s: float) -> None:
        """A client asks for a linearizable read."""
        floor = self.history[group_id].acked_index
        group = process.groups[group_id]

        def settled(error: Exception | None) -> None:
            if error is None:
                self.barriers_passed += 1
                self.require(group.applied_index >= floor, f"{process.node_id}: a read misses an acked entry")
            else:
                self.require(isinstance(error, NotLeader | TimeoutError), f"a barrier ended with {error!r}")

        group.submit_barrier(timeout_s, settled)

    def crashed(self, process: "Process") -> None:
        """No node hears from this process any more."""
        for attempt in self.attempts:
            if attempt.process is process and attempt.outcome is None:
                attempt.outcome = Unknown(None)

    def check_answers(self) -> None:
        """Nothing is silent: whose deadline is over was answered."""
        for attempt in self.attempts:
            process = attempt.process
            late = attempt.outcome is None and not process.is_paused and process.time() > attempt.deadline + LATE_S
            self.require(not late, f"{attempt.payload!r} was never answered")

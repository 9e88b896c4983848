"""What the checker knows of members: who voted for whom, with which disk, and what a step of a configuration may be."""

from collections import defaultdict
from typing import TYPE_CHECKING

from simulation.disk import FIRST_INDEX, View

from stockade.raft.core.raft_node import RaftNode
from stockade.raft.log.configuration import Configuration, founding_configuration

if TYPE_CHECKING:
    from simulation.world import Process, World

Identity = tuple[str, int]
"""A node with a disk: wiped, it is another one."""


def configurations(view: View) -> list[tuple[int, Configuration]]:
    """Those in a log, oldest first."""
    return [(index, Configuration.of_entry(view.entries[index - view.first_index][1])) for index in view.changes]


class Members:
    """The members of the groups of a world, as its disks and messages tell."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._votes: dict[tuple[int, int, Identity], str] = {}
        self._voters: defaultdict[tuple[int, int, str], set[Identity]] = defaultdict(set)
        self._began: dict[tuple[int, int], int] = {}
        self.committed: dict[int, Configuration] = {}

    def identity(self, node: str) -> Identity:
        return node, self._world.disks[node].incarnation

    def in_force(self, process: "Process", group_id: int) -> Configuration:
        """The latest configuration in the log of a process, or what its log builds upon."""
        known = configurations(process.log.views[group_id])
        return known[-1][1] if known else process.groups[group_id]._node.log.origin.configuration

    def voted(self, group_id: int, term: int, voter: str, candidate: str) -> bool:
        """A vote leaves its node; False if the same voter, with the same disk, voted for another candidate."""
        identity = self.identity(voter)
        self._voters[group_id, term, candidate].add(identity)
        return self._votes.setdefault((group_id, term, identity), candidate) == candidate

    def has_won(self, group_id: int, term: int, leader: "Process") -> bool:
        """Whether a majority of the voters in its own log, each with the very disk named there, voted for a leader."""
        voters = self.in_force(leader, group_id).voters.items()
        own = self._world.disks[leader.node_id].durable[group_id]
        if (own.term, own.voted_for) == (term, leader.node_id):
            self.voted(group_id, term, leader.node_id, leader.node_id)
        return 2 * len(self._voters[group_id, term, leader.node_id] & voters) > len(voters)

    def copies(self, group_id: int, leader: "Process", index: int, entry: tuple[int, bytes]) -> tuple[int, int]:
        """On how many disks of the leader's voters an entry is, and how many voters there are.

        Those of the configuration in force when it was committed: one that was put in force after that, in the same
        event, does not decide. A copy on a disk that was lost since has counted, too.
        """
        known = reversed(configurations(leader.log.views[group_id]))
        before = leader.groups[group_id]._node.log.origin.configuration
        voters = next((its for at, its in known if self._began.get((group_id, at), 0) < index), before).voters
        disks = [self._world.disk(node, incarnation) for node, incarnation in voters.items()]
        return sum(disk is not None and disk.has(group_id, index, entry) for disk in disks), len(voters)

    def began(self, group_id: int, index: int, commit_index: int) -> None:
        """A leader puts the configuration at ``index`` in force, having committed up to ``commit_index``."""
        self._began[group_id, index] = commit_index

    def fault(self, leader: "Process", group_id: int, payload: bytes, commit_index: int) -> str | None:
        """What is wrong with a configuration that a leader is about to append, if anything is."""
        view = leader.log.views[group_id]
        known = configurations(view)
        before, after = self.in_force(leader, group_id), Configuration.of_entry(payload)
        if known and known[-1][0] > commit_index:
            return f"changes the members while entry {known[-1][0]} does is not committed"
        if len(before.voters.items() ^ after.voters.items()) > 1:
            return f"changes more than one voter: {before} to {after}"
        for promoted, incarnation in after.voters.items() - before.voters.items():
            node = leader.groups[group_id]._node
            most = self._most_lacked(node, promoted)
            if not self.has_caught_up(view, node.term, group_id, promoted, incarnation, most):
                return f"promotes {promoted}, which has not caught up"
        return None

    def _most_lacked(self, leader: RaftNode, learner: str) -> int:
        """The most bytes that a learner may lack when it is promoted: a message, or a window if it keeps up."""
        assert leader.leading is not None
        settings, most = self._world.settings, self._world.settings.message_bytes_max
        return max(most, settings.window_bytes_max) if leader.leading.followers[learner].keeps_up else most

    def has_caught_up(self, view: View, term: int, group_id: int, node: str, incarnation: int, most_bytes: int) -> bool:
        """Whether a node lacks on disk at most one entry, or so many bytes, of a log as the leader of a term has it.

        A node in a newer term may have lost again what it had: the old leader cannot know, and will not commit alone.
        """
        disk = self._world.disk(node, incarnation)  # lost a moment ago, perhaps, which no node can know yet
        if disk is None:
            return False
        if disk.durable[group_id].term > term:
            return True
        at = max(disk.durable[group_id].last_index, disk.covered(group_id))
        while at > disk.covered(group_id) and disk.durable[group_id].entry(at) != view.entry(at):
            at -= 1
        missing = [len(payload) for _, payload in view.entries[max(0, at + 1 - view.first_index) :]]
        return len(missing) <= 1 or sum(missing) <= most_bytes

    def may_lose(self, node: str) -> bool:
        """Whether, with the disk of a node gone, a majority is left of every configuration that may be in force.

        A leader may be about to promote a learner whose disk it does not know to be gone: that would be a voter, too.
        """
        return all(
            self.keeps_majority(known.voters | promoted, node)
            for group_id in self._world.group_ids
            for known in self._open(group_id)
            for promoted in [{}, *({learner: disk} for learner, disk in known.learners.items())]
        )

    def is_wanted(self, group_id: int, identity: Identity) -> bool:
        """Whether a configuration that is, or may come into force, names a node with this disk."""
        return any(identity in known.members.items() for known in self._open(group_id))

    def _open(self, group_id: int) -> list[Configuration]:
        committed = self.committed.get(group_id) or founding_configuration(self._world.founders)
        last = self._world.checker.history[group_id].commit_index
        views = [disk.durable[group_id] for disk in self._world.disks.values()]
        views += [process.log.views[group_id] for process in self._world.processes.values()]
        return [committed, *(known for view in views for index, known in configurations(view) if index > last)]

    def keeps_majority(self, voters: dict[str, int], lost: str | None = None) -> bool:
        """Whether a majority of these voters has the disk that is named, and would have it without one node."""
        disks = self._world.disks
        intact = [node for node, disk in voters.items() if node != lost and disks[node].incarnation == disk]
        return 2 * len(intact) > len(voters)


def is_new_term_settled(view: View, term: int, commit_index: int) -> bool:
    """Whether an entry of this term is committed."""
    first = max(view.first_index, FIRST_INDEX)
    return any(view.term_at(index) == term for index in range(min(commit_index, view.last_index), first - 1, -1))

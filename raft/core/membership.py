"""The nodes that count as voters: the configuration in force, compared with the disks that the nodes really have.

Membership changes are single-server changes (Ongaro's thesis, chapter 4). A configuration is in force as soon as it is
in a log. Two in a row differ by one voter at most, so their majorities meet. The next one begins only when the last one
is committed, so no leader holds two that are open; and only when the leader has committed an entry of its own term, so
that any change which an earlier leader had begun is settled: it is in this log, or can no longer be committed.
"""

from collections.abc import Set

from ..log.configuration import Configuration
from ..log.group_log import GroupLog


class Membership:
    """The members of a group, and which of them count for a majority, as this node knows it.

    A vote, a pre-vote, an ack or a sign of life counts only if it comes from the very disk that the configuration
    names. A node whose disk was wiped has forgotten its votes and acks, so its answers count for no majority.
    """

    def __init__(self, node_id: str, incarnation: int, log: GroupLog) -> None:
        self.node_id = node_id
        self.peers: dict[str, int] = {}
        """The connected nodes, with the incarnations of their disks."""
        self.full_disks: Set[str] = frozenset()
        """The connected nodes whose disks are full: they are sent no entries while a majority can do without them."""
        self._incarnation = incarnation
        self._log = log

    @property
    def configuration(self) -> Configuration:
        """The configuration in force: the latest one in the log, committed or not."""
        return self._log.configuration

    @property
    def is_voter(self) -> bool:
        """Whether this node, with its present disk, is a voter. It counts itself for a majority only then."""
        return self.configuration.voters.get(self.node_id) == self._incarnation

    def may_campaign(self, commit_index: int) -> bool:
        """Whether this node is a voter in the committed configuration or in any later one.

        A leader that removes itself may restart with the only copy of that entry. Then no other node can win an
        election, and this node must lead, without counting itself for a majority, until the others have the entry.
        """
        if self._log.end < self._log.promised_end:
            return False  # this node lacks entries that it acked, so it must not vote for itself
        known = self._log.configurations_since(commit_index)
        return any(each.voters.get(self.node_id) == self._incarnation for each in known)

    def may_vote(self, commit_index: int) -> bool:
        """Whether this node, with its present disk, is a member of the committed configuration or of any later one.

        Learners grant votes, too: the candidate may have a configuration that makes this node a voter and has not
        arrived here. The candidate counts only the votes of voters, so a superfluous vote does no harm. A node that is
        in no configuration, or only with another disk, grants nothing.
        """
        known = self._log.configurations_since(commit_index)
        return any(each.members.get(self.node_id) == self._incarnation for each in known)

    @property
    def others(self) -> tuple[str, ...]:
        """The voters besides this node."""
        return tuple(node_id for node_id in self.configuration.voters if node_id != self.node_id)

    @property
    def majority(self) -> int:
        """How many voters are a majority."""
        return len(self.configuration.voters) // 2 + 1

    def counts(self, node_id: str) -> bool:
        """Whether the answers of another node, over its present connection, count as those of a voter."""
        incarnation = self.peers.get(node_id)
        return incarnation is not None and incarnation == self.configuration.voters.get(node_id)

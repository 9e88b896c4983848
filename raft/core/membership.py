"""Who counts: the configuration in force, held against the disks that the nodes really have."""

from .configuration import Configuration
from .journal import Journal


class Membership:
    """A vote, a promise, an ack or a sign of life counts only if it comes from the very disk that the configuration
    names. So one that was wiped since, and has forgotten what it said, speaks for nobody.
    """

    def __init__(self, node_id: str, incarnation: int, journal: Journal) -> None:
        self.node_id = node_id
        self.peers: dict[str, int] = {}
        """The connected nodes, with the incarnations of their disks."""
        self._incarnation = incarnation
        self._journal = journal

    @property
    def configuration(self) -> Configuration:
        """In force from the moment it is in the journal, committed or not, until it is cut off again."""
        return self._journal.configuration

    @property
    def is_voter(self) -> bool:
        """Whether this node, with the disk that it has, is a voter: it counts itself."""
        return self.configuration.voters.get(self.node_id) == self._incarnation

    def may_campaign(self, commit_index: int) -> bool:
        """Whether this node is a voter, or was one in any configuration that is not known to be replaced.

        A leader that removes itself may die with the only copy of that: then nobody else can win, and it must lead,
        without counting itself, until the others have it.
        """
        if self._journal.end < self._journal.promised_end:
            return False  # it would not vote for itself
        known = self._journal.configurations_since(commit_index)
        return any(each.voters.get(self.node_id) == self._incarnation for each in known)

    def has_a_say(self, commit_index: int) -> bool:
        """Whether this node, with the disk that it has, is or was a voter or learner, as above.

        Whoever has a say votes when asked: a candidate may know of a promotion that has not arrived here, or of a
        removal that never will be. It is the candidate who counts, so a vote too many does no harm. Who knows nothing,
        or knows itself only with another disk, grants nothing.
        """
        known = self._journal.configurations_since(commit_index)
        return any(each.members.get(self.node_id) == self._incarnation for each in known)

    @property
    def others(self) -> tuple[str, ...]:
        """The voters besides this node."""
        return tuple(node_id for node_id in self.configuration.voters if node_id != self.node_id)

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.configuration.voters) // 2 + 1

    def counts(self, node_id: str) -> bool:
        """Whether what another node says, over its present connection, counts as a voter's word."""
        incarnation = self.peers.get(node_id)
        return incarnation is not None and incarnation == self.configuration.voters.get(node_id)

    def reaches_majority(self, configuration: Configuration) -> bool:
        """Whether a majority of this configuration is connected, or us."""
        here = self.peers | {self.node_id: self._incarnation}
        voters = configuration.voters.items()
        return 2 * sum(here.get(node_id) == incarnation for node_id, incarnation in voters) > len(voters)

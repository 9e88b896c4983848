"""Who counts: the configuration in force, held against the disks that the nodes really have."""

from .configuration import Configuration, is_disk
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
        """Whether this node, with the disk that it has, is a voter: it may campaign, and counts itself."""
        return is_disk(self.configuration.voters.get(self.node_id), self._incarnation)

    @property
    def is_member(self) -> bool:
        """Whether this node, with the disk that it has, is a voter or a learner.

        Members vote when they are asked: a candidate may know of a promotion that has not arrived here, and it is the
        candidate who counts. Who knows nothing, or knows itself only with another disk, grants nothing.
        """
        return is_disk(self.configuration.members.get(self.node_id), self._incarnation)

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
        return is_disk(self.configuration.voters.get(node_id), self.peers.get(node_id))

    def reaches_majority(self, configuration: Configuration) -> bool:
        """Whether a majority of this configuration is connected, or us."""
        here = self.peers | {self.node_id: self._incarnation}
        voters = configuration.voters.items()
        return 2 * sum(is_disk(incarnation, here.get(node_id)) for node_id, incarnation in voters) > len(voters)

"""The cluster's feature level: what all members understand, replicated by the controller and raised by an operator.

While a cluster is upgraded, its nodes run two releases. Each must read what the other writes into a log, a checkpoint
or a file, and after a rollback go on with it. So a release that brings a command, a field or a format brings a feature
level, too, and uses them only at that level: ``features.require(TIERS)``. The level is raised once, by one command,
when every member supports it; it never goes down. Before, every node can be rolled back.
"""

from typing import Protocol

from ..partition.errors import FeatureLevelTooLow
from ..partition.version import VERSION
from ..raft.messages import Software

OLDEST_LEVEL = 1
"""Lowest level of a cluster that this software can be a member of. The release after the next may raise it by one."""
NEWEST_LEVEL = 2
"""Highest level that this software supports. Level 1: all software up to commit 787c146 (protocol 6). Level 2:
RaiseFeatureLevel, disks that say their level (wal/identity), and what is named here.
"""

BALANCE = 2
"""The commands of controller/balance.py; the questions AskNode and TransferLeaderships of the controller's leader."""
BACKUPS = 2
"""The command NoteBackup."""
LEDGER = 2
"""The commands of controller/ledger.py."""
TIERS = 2
"""A partition's commands BeginTier and AddTierObject; a topic's local retention and quota_bytes."""
KEPT_OFFSETS = 2
"""A partition's command BeginAt: a restored log keeps its offsets."""
SESSION_FENCES = 2
"""The command FenceSession."""
WIDE_GROUPS = 2
"""Groups with ids of more than 32 bits, for which level 1 has no frames: those of topics that are created behind 65,535
entries of the controller's log.
"""
FORGOTTEN_PARTITIONS = 2
"""ForgetResources also takes resources that are named like a partition of no topic."""
WITHDRAWN_TICKETS = 2
"""PutPrincipal and DeletePrincipal take tickets out of the queue."""
FORGOTTEN_POSITIONS = 2
"""CommitPosition without an offset forgets a position."""
CHECKED_WRITERS = 2
"""Own.unwritable; owners in a topic's new writer_group lose its partitions."""
STAGE_OWNERS = 2
"""PutStage.principal."""
RESUMED_TOPICS = 2
"""An acquire of all partitions resumes the epoch of those that had one."""
FENCED_TAKEOVERS = 2
"""A producer's name that another principal takes over gets a new epoch in any case."""
AWAITED_DEPARTURES = 2
"""The end of a session waits for partitions where more grants ended than are remembered."""
AWAITED_OWNERS = 2
"""The end of a session waits for the partitions that it gave up or lost as resources before, until they refuse it."""
FORGOTTEN_MESSAGE_IDS = 2
"""Retain.all_message_ids."""
FENCED_WAITERS = 2
"""An operator's fence cancels the tickets that would resume an older epoch, also where no grant ends."""
PRESENT_TARGETS = 2
"""RemoveNode.away and RemoveZone.away."""
LISTED_TARGETS = 2
"""CreateTopic and ChangeTopic place nothing on a node that was removed since they were made."""
FOLLOWING_FACTORS = 2
"""Reassign changes a topic's replication factor once all its partitions have another number of replicas."""

SOFTWARE = Software(VERSION, OLDEST_LEVEL, NEWEST_LEVEL)
"""The software of this node, as it tells the other nodes."""


class Host(Protocol):
    """What `Features` needs of `stockade.raft.host.RaftHost`, which it need not load: a configuration, too, is checked
    with the bounds that levels bring.
    """

    @property
    def level(self) -> int: ...


class Features:
    """The level that this node acts by: that of the newest catalog, once the node's disk says so. It only grows."""

    def __init__(self, host: Host | None = None, level: int = NEWEST_LEVEL) -> None:
        """``host`` None: the level is fixed, for tests."""
        self._host = host
        self._level = level

    @property
    def level(self) -> int:
        """The level now."""
        return self._level if self._host is None else self._host.level

    def at_least(self, level: int) -> bool:
        """Whether this node may propose and write what needs this level. What a replica's apply does may not depend on
        this, since replicas learn the level at different times: it depends on the command, and in the controller's
        machine on ``assignment.feature_level``, which is part of its state.
        """
        return self.level >= level

    def require(self, level: int) -> None:
        """Raises FeatureLevelTooLow, unless this is the level or it is above."""
        if not self.at_least(level):
            raise FeatureLevelTooLow(feature_level=self.level, needed=level)

"""The cluster's feature level: what all members understand, replicated by the controller and raised by an operator.

While a cluster is upgraded, its nodes run two releases. Each must read what the other writes into a log, a checkpoint
or a file, and after a rollback go on with it. So a release that brings a command, a field or a format brings a feature
level, too, and uses them only at that level: ``features.require(TIERS)``. The level is raised once, by one command,
when every member supports it; it never goes down. Before, every node can be rolled back.

Level 1: all software up to commit 787c146 of this project (protocol 6).
Level 2: RaiseFeatureLevel itself; disks that say their level (wal/identity); a partition's command BeginAt, so that a
restored log keeps its offsets. Balance: the commands of controller/balance.py, and the questions AskNode and HandOver
of the controller's leader. The ledger: the commands of controller/ledger.py. Tiered storage: a partition's commands
BeginTier and AddTierObject, and a topic's local retention. A topic's quota_bytes. FenceSession. ForgetResources takes
resources that are named like a partition, and are none, too; PutPrincipal and DeletePrincipal take tickets out of the
queue. CommitPosition without an offset forgets a position. Own.unwritable; owners in a topic's new writer_group lose
its partitions. PutStage.principal. An acquire of all partitions resumes the epoch of those that had one. A producer's
name that another principal takes over gets a new epoch in any case. The end of a session waits for partitions where
more grants ended than are remembered. Retain.all_message_ids. An operator's fence takes those out of the line who would
resume an older epoch, also where no grant ends. Groups with ids of more than 32 bits: those of topics
that are created behind 65,535 entries of the controller's log, for which level 1 has no frames. RemoveNode.away and
RemoveZone.away.
"""

from ..partition.errors import FeatureLevelTooLow
from ..partition.version import VERSION
from ..raft.host import RaftHost, Software

OLDEST_LEVEL = 1
"""Lowest level of a cluster that this software can be a member of. The release after the next may raise it by one."""
NEWEST_LEVEL = 2
BALANCE = BACKUPS = LEDGER = TIERS = KEPT_OFFSETS = SESSION_FENCES = WIDE_GROUPS = 2
FORGOTTEN_PARTITIONS = WITHDRAWN_TICKETS = FORGOTTEN_POSITIONS = CHECKED_WRITERS = STAGE_OWNERS = 2
RESUMED_TOPICS = FENCED_TAKEOVERS = AWAITED_DEPARTURES = FORGOTTEN_MESSAGE_IDS = FENCED_WAITERS = PRESENT_TARGETS = 2
"""The level from which on a cluster has these features."""
SOFTWARE = Software(VERSION, OLDEST_LEVEL, NEWEST_LEVEL)
"""What this node runs, as it tells the others."""


class Features:
    """The level that this node acts by: that of the newest catalog, once the node's disk says so. It only grows."""

    def __init__(self, host: RaftHost | None = None, level: int = NEWEST_LEVEL) -> None:
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

"""The measures of a node at one moment, read when a monitor asks for them.

http_api/request/series.py says what each means.
"""

import msgspec

from ..raft.histogram import Histogram

LAGGING_GROUPS_MAX = 20
"""Consumer groups in the lag metric: those that lag most."""
QUOTAS_MAX = 20
"""Topics in the quota metric: those with the highest share used."""
POSITIONS_MAX = 50_000
"""Positions of consumer groups that one look adds up; it leaves out any further ones."""


class GroupCounts(msgspec.Struct):
    """Counts of the Raft groups of one kind on this node; of ``under_replicated`` ones, only those that it leads."""

    leaders: int = 0
    followers: int = 0
    learners: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    term_max: int = 0


class RaftMeasures(msgspec.Struct):
    """All groups of this node: by kind (controller, partition), and together."""

    groups: dict[str, GroupCounts]
    follower_lags: dict[str, int]
    """By other node: the committed entries that it lacks, in the group led here in which it lacks most."""
    apply_lag: int
    pending: int
    pending_bytes: int
    won: int
    taken: int
    lost: int
    applies: Histogram
    connected: int
    away: int
    certificate_expires_at: float | None
    is_certificate_refused: bool = False
    """Whether the certificate's files cannot be used as they are now, so that those before them are in use."""


class LogMeasures(msgspec.Struct):
    """Bytes on this node's disk, and how long it takes to sync."""

    syncs: Histogram
    unsynced_bytes: int
    wal_bytes: int
    segment_bytes: int
    disk_free_bytes: int
    disk_size_bytes: int
    disk_state: str
    """ok, low or full."""
    quotas: dict[str, float] = {}
    """By topic, the share of its ``quota_bytes`` that is used on the fullest partition led here: 0 to 1, or a little
    more where the quota was lowered.
    """


class BalanceMeasures(msgspec.Struct, frozen=True):
    """How the cluster was balanced when it was last looked at, and the plan of that look."""

    leaders_away: int = 0
    """Partitions whose leader is not their home, the first of their replicas."""
    planned_moves: int = 0
    planned_bytes: int = 0
    moving_bytes: int = 0
    """Upper bound of the bytes that moves under way still have to copy."""
    leaderless: int = 0
    """Partitions that no node reports to lead, those included whose replicas are all on nodes that are away."""


class FenceMeasures(msgspec.Struct):
    """Counts by the controller group's leader: of sessions, writers and fences, and of what it moves."""

    sessions: int
    grants: int
    held_partitions: int
    waiters: int
    pending_installs: int
    pending_s: float
    """Seconds for which the one of these partitions that waits longest has confirmed no decision about its slot."""
    moves: int
    ledger_waiting: int
    ledger_used: float
    """The part of the room for these entries that they use, from 0 on; from 1 on, further ones are left out."""
    balance: BalanceMeasures


class TieredMeasures(msgspec.Struct):
    """The tiered store as a node uses it: uploads and reads since its start, by outcome; the bytes of log in the store,
    of partitions led here; and how long the longest waiting segment has waited for its upload.
    """

    uploads: dict[str, int]
    reads: dict[str, int]
    bytes: int
    waiting_s: float


class Measures(msgspec.Struct):
    """One node. ``tiered`` is None without a tiered store, ``fences`` is None unless it leads the controller group."""

    cluster_id: str
    node_id: str
    zone: str
    version: str
    commit: str
    raft: RaftMeasures
    log: LogMeasures
    fences: FenceMeasures | None
    takeovers: int
    group_lags: dict[str, int]
    """By consumer group: records that it has not read yet, of the partitions that this node leads."""
    tiered: TieredMeasures | None = None
    doubled_by: str | None = None
    """Base URL of another process that runs under this node's id, as Registration sees it."""
    bugs: int = 0
    """Steps of the Reconciler and the Mover here that met a bug."""

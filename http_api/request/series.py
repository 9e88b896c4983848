"""Every series of /metrics except those of the process: name, kind, labels, unit and meaning.

docs/metrics.md is generated from this file.

A label has few values: a route's template, a refusal's code, a node of the cluster; never a topic, a path or a session.
"""

from typing import Literal, NamedTuple

from ...cluster.measures import LAGGING_GROUPS_MAX, POSITIONS_MAX
from ...raft.core.leader import IN_SYNC_ENTRIES_MAX

Kind = Literal["counter", "gauge", "histogram"]


class Series(NamedTuple):
    """One family. ``name`` has no ``_total``, which the text format adds to a counter."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        """The name in queries; that of a histogram without ``_bucket``, ``_sum`` and ``_count``."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_HTTP = (
    Series("stockade_http_requests", "counter", "requests", "Requests answered.", ("method", "route", "status")),
    Series(
        "stockade_http_request_seconds",
        "histogram",
        "seconds",
        "Time from a request to the end of its answer; followed streams are left out.",
        ("method", "route"),
    ),
    Series(
        "stockade_http_refusals",
        "counter",
        "problems",
        "Problems answered, those of single parts too, but not those of /readyz; and those of appends with acks=0. "
        "INTERNAL_ERROR and REQUEST_TIMED_OUT are there from the start.",
        ("code",),
    ),
    Series(
        "stockade_http_fast_path_bugs",
        "counter",
        "requests",
        "Requests whose fast path met a bug; the handler of their route answered them.",
    ),
    Series("stockade_http_connections", "gauge", "connections", "Connections of clients that are open."),
    Series(
        "stockade_http_ended_connections", "counter", "connections", "Connections that the node ended.", ("reason",)
    ),
    Series("stockade_http_in_flight_requests", "gauge", "requests", "Requests that the node works on, waits included."),
    Series(
        "stockade_http_in_flight_bytes",
        "gauge",
        "bytes",
        "Memory of the bodies, or of the answers, of the requests in flight.",
        ("what",),
    ),
    Series("stockade_http_followers", "gauge", "streams", "Followed streams that are open."),
    Series(
        "stockade_http_waiting_for_leader",
        "gauge",
        "requests",
        "Requests, and parts of them, that wait for a leader to be known.",
    ),
    Series(
        "stockade_loop_stall_seconds",
        "histogram",
        "seconds",
        "Times for which the event loop stood still: held by what ran on it, or waiting for processor or disk.",
        ("cause",),
    ),
)
_WRITES = (
    Series("stockade_appended_records", "counter", "records", "Records stored by appends here."),
    Series("stockade_appended_bytes", "counter", "bytes", "Bytes of the batches stored by appends here."),
    Series("stockade_refused_writes", "counter", "writes", "Writes that partitions refused.", ("code", "reason")),
)
_NODE = (
    Series(
        "stockade_node_info",
        "gauge",
        "always 1",
        "What the node is, and from which commit it was built.",
        ("cluster", "node", "zone", "version", "commit"),
    ),
    Series(
        "stockade_ready",
        "gauge",
        "1 or 0",
        "Whether the node serves records (`data`, as /readyz/data says), and sessions, grants and topics (`control`).",
        ("what",),
    ),
    Series(
        "stockade_node_doubled",
        "gauge",
        "1 or 0",
        "Whether another process registered with this node's id within the last 30 s.",
    ),
    Series(
        "stockade_step_bugs",
        "counter",
        "steps",
        "Steps towards a decision about a slot, or of a move of replicas, that met a bug; the node tries them again.",
    ),
    Series(
        "stockade_certificate_days_left",
        "gauge",
        "days",
        "Until the node's own certificate expires; below 0 afterwards. Absent without TLS.",
        ("use",),
    ),
    Series(
        "stockade_certificate_refused",
        "gauge",
        "1 or 0",
        "Whether the node refuses the files of its certificate as they are now, and uses those before. Absent without "
        "TLS.",
        ("use",),
    ),
)
_RAFT = (
    Series(
        "stockade_raft_groups",
        "gauge",
        "groups",
        "Raft groups on this node by its role in them. A learner is being filled, or has left.",
        ("kind", "role"),
    ),
    Series("stockade_raft_leaderless_groups", "gauge", "groups", "Groups here of which no leader is known.", ("kind",)),
    Series(
        "stockade_raft_under_replicated_groups",
        "gauge",
        "groups",
        "Groups led here with a member that is away, that is being filled, or that lacks more than "
        f"{IN_SYNC_ENTRIES_MAX} committed entries.",
        ("kind",),
    ),
    Series("stockade_raft_term_max", "gauge", "term", "The highest term of the groups here.", ("kind",)),
    Series("stockade_raft_leaderships_won", "counter", "leaderships", "Leaderships that began here."),
    Series(
        "stockade_raft_leaderships_taken",
        "counter",
        "leaderships",
        "Those of them that followed another leadership of the group: the first ones of new partitions are left out.",
    ),
    Series(
        "stockade_raft_leaderships_lost", "counter", "leaderships", "Leaderships that ended here, transfers included."
    ),
    Series(
        "stockade_raft_follower_lag_entries",
        "gauge",
        "entries",
        "Committed entries that a node lacks on its disk, in that group led here in which it lacks most.",
        ("node",),
    ),
    Series(
        "stockade_raft_apply_lag_entries",
        "gauge",
        "entries",
        "Committed entries that are not applied here, in the group with most of them. Followers apply in runs of 16.",
    ),
    Series("stockade_raft_apply_seconds", "histogram", "seconds", "Time of each run of applies of a group."),
    Series("stockade_raft_pending_proposals", "gauge", "proposals", "Proposals here that wait for their commit."),
    Series("stockade_raft_pending_bytes", "gauge", "bytes", "Commands of those proposals."),
    Series(
        "stockade_raft_nodes",
        "gauge",
        "nodes",
        "Other nodes of the cluster by whether a connection to them is open.",
        ("state",),
    ),
    Series(
        "stockade_raft_moves",
        "gauge",
        "groups",
        "Groups whose replicas move to other nodes. Only where the controller group is led.",
    ),
)
_BALANCE = (
    Series(
        "stockade_balance_leaders_away",
        "gauge",
        "partitions",
        "Partitions that another node leads than the first of their replicas. Only where the controller group is led.",
    ),
    Series(
        "stockade_balance_planned_moves",
        "gauge",
        "partitions",
        "Partitions whose replicas the present plan of balance changes. Only where the controller group is led.",
    ),
    Series(
        "stockade_balance_planned_bytes",
        "gauge",
        "bytes",
        "That the present plan copies. Only where the controller group is led.",
    ),
    Series(
        "stockade_balance_moving_bytes",
        "gauge",
        "bytes",
        "That moves under way copy, whole until a copy is done. Only where the controller group is led.",
    ),
    Series(
        "stockade_balance_leaderless_partitions",
        "gauge",
        "partitions",
        "Partitions that no node reports to lead, also where all replicas are on nodes that are away. Only where the "
        "controller group is led; 0 below feature level 2.",
    ),
)
_LOG = (
    Series("stockade_log_fsync_seconds", "histogram", "seconds", "Time of each fdatasync of the write-ahead log."),
    Series("stockade_log_unsynced_bytes", "gauge", "bytes", "Appended to the write-ahead log, and not on disk yet."),
    Series("stockade_log_wal_bytes", "gauge", "bytes", "Files of the write-ahead log, without spare ones."),
    Series("stockade_log_segment_bytes", "gauge", "bytes", "Segment files of the partitions on this node."),
    Series("stockade_log_disk_free_bytes", "gauge", "bytes", "Free for this process on the file system of data_dir."),
    Series("stockade_log_disk_size_bytes", "gauge", "bytes", "Size of the file system of data_dir."),
    Series(
        "stockade_log_quota_used_ratio",
        "gauge",
        "0 to 1",
        "The part of a topic's quota_bytes that its fullest partition led here keeps; of the 20 topics with most, none "
        "for a quota of 0; only for a caller with the right `read cluster`.",
        ("topic",),
    ),
    Series(
        "stockade_log_disk_state",
        "gauge",
        "1 or 0",
        "How full that file system is. Low: the node takes no appends. Full: no copies of partitions either.",
        ("state",),
    ),
)
_TIERED = (
    Series(
        "stockade_tiered_uploads",
        "counter",
        "objects",
        "Objects for the tiered store by what became of them: stored; failed, to be tried again; or refused, since "
        "another leader was first. Absent without a store, as the next three.",
        ("outcome",),
    ),
    Series(
        "stockade_tiered_reads",
        "counter",
        "objects",
        "Objects that reads needed: cached on this node, fetched from the store, or failed.",
        ("outcome",),
    ),
    Series("stockade_tiered_bytes", "gauge", "bytes", "Of the partitions led here, in the tiered store."),
    Series(
        "stockade_tiered_waiting_seconds",
        "gauge",
        "seconds",
        "For how long the segment that waits longest has been due in the tiered store, of the partitions led here.",
    ),
)
_FENCES = (
    Series("stockade_fence_sessions", "gauge", "sessions", "Live sessions. Only where the controller group is led."),
    Series(
        "stockade_fence_grants",
        "gauge",
        "grants",
        "Live grants, Shared ones too. Only where the controller group is led.",
    ),
    Series(
        "stockade_fence_held_partitions",
        "gauge",
        "partitions",
        "Partitions with an exclusive writer. Only where the controller group is led.",
    ),
    Series(
        "stockade_fence_waiters",
        "gauge",
        "tickets",
        "Tickets that wait for grants. Only where the controller group is led.",
    ),
    Series(
        "stockade_fence_pending_installs",
        "gauge",
        "partitions",
        "Partitions that have not confirmed the last decision about their slot: some at each moment, where writers "
        "come and go. Only where the controller group is led.",
    ),
    Series(
        "stockade_fence_pending_seconds",
        "gauge",
        "seconds",
        "For how long the one of these that waits longest has confirmed no decision about its slot, as this node has "
        "seen since it leads the controller group and is asked for its metrics.",
    ),
    Series(
        "stockade_ledger_waiting_entries",
        "gauge",
        "entries",
        "Entries of the ledger that its topic is not known to have yet. Only where the controller group is led.",
    ),
    Series(
        "stockade_ledger_used_ratio",
        "gauge",
        "0 to 1",
        "The part of the room for these entries that they use: 50,000 of them or 16 MiB, whichever is nearer. From 1 "
        "on, those of grants, owners and sessions are left out. Only where the controller group is led.",
    ),
    Series(
        "stockade_fence_takeovers",
        "counter",
        "partitions",
        "Partitions taken from their holder, or fenced on purpose, while this node led the controller group.",
    ),
    Series(
        "stockade_group_lag_records",
        "gauge",
        "records",
        "Records that a consumer group has not read, of the partitions led here on which it has committed a position: "
        f"sum over nodes. Of the {LAGGING_GROUPS_MAX} groups that lag most on a node, by its first {POSITIONS_MAX:,} "
        "positions; only for a caller with the right `read cluster`.",
        ("group",),
    ),
)

SECTIONS: dict[str, tuple[Series, ...]] = {
    "Requests": _HTTP,
    "Writes": _WRITES,
    "The node": _NODE,
    "Raft": _RAFT,
    "Balance": _BALANCE,
    "The log on disk": _LOG,
    "The tiered store": _TIERED,
    "Writers, sessions and consumer groups": _FENCES,
}
"""All series, by the heading of docs/metrics.md."""
SERIES: tuple[Series, ...] = tuple(each for section in SECTIONS.values() for each in section)
WITH_NAMES = frozenset({"stockade_group_lag_records", "stockade_log_quota_used_ratio"})
"""Series with names that only a caller with the right ``read cluster`` may see."""

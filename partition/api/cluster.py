"""The cluster as the answering node sees it: nodes, leaders, moves; and the counters of each node."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class LeaderInfo(msgspec.Struct, frozen=True):
    """The leader of a group: base URL, node id, term. None, None and 0 while it is unknown."""

    leader: str | None
    leader_node: str | None
    leader_term: int


class FeatureLevels(msgspec.Struct, frozen=True):
    """The oldest and the newest feature level of a cluster that a node's software can be a member of."""

    oldest: int
    newest: int


class Node(msgspec.Struct, frozen=True):
    """A member. ``url`` serves HTTP, ``raft_address`` (host:port) the other nodes.

    ``alive``: the answering node has heard from it lately. ``draining``: its replicas are being moved away. ``disk``:
    how full its disk is, as the member said last: low, it takes no appends; full, no copies either. ``version`` is that
    of its software, ``feature_levels`` are those that the software supports; both are None while the answering node is
    not connected to it, and the version is None of software that does not tell it.
    """

    node_id: str
    url: str
    raft_address: str
    zone: str | None
    alive: bool
    draining: bool = False
    disk: Literal["ok", "low", "full"] = "ok"
    version: str | None = None
    feature_levels: FeatureLevels | None = None


class Reassignment(msgspec.Struct, frozen=True):
    """A partition's replicas move to these nodes (node ids)."""

    topic: str
    partition: int
    replicas: list[str]


class Relocation(msgspec.Struct, frozen=True):
    """A partition's replicas go from the nodes ``replicas`` to the nodes ``target`` (node ids). ``topic`` and
    ``partition`` None: the controller group's.
    """

    topic: str | None
    partition: int | None
    replicas: list[str]
    target: list[str]


class RemovalPlan(msgspec.Struct, frozen=True):
    """The moves that a removal of these nodes would make. ``plan`` is their digest: a removal with it as ``if_plan`` is
    refused once the plan has changed.
    """

    plan: str
    node_ids: list[str]
    moves: list[Relocation]


BalanceMode = Literal["on", "leaders", "off"]
"""What the cluster does by itself: ``on``, leaders go home and replicas move; ``leaders``, leaders go home; ``off``,
nothing.
"""


MovesAtOnce = Annotated[int, Meta(ge=1, le=64)]
CopyPace = Annotated[int, Meta(ge=0, le=1 << 40)]
StableMs = Annotated[int, Meta(ge=1_000, le=86_400_000)]
UsedPercent = Annotated[int, Meta(ge=50, le=99)]


class BalanceSettings(msgspec.Struct, frozen=True):
    """How the cluster keeps itself in balance; in force on all nodes as soon as it is changed.

    - ``mode``: ``on``, leaders go home and replicas move; ``leaders``, leaders go home; ``off``, neither does.
    - ``moves_at_once``: partitions that move at a time, by themselves or as a plan was confirmed.
    - ``copy_bytes_per_s``: bytes of copies that a node receives, and that it sends, in a second; 0: without a bound.
    - ``stable_ms``: how long a node must have run, answered and had a fast disk before the cluster gives it leaders or
      replicas.
    - ``disk_used_percent_max``: the cluster moves replicas off a disk that is fuller than this, and moves none to a
      disk that would be nearly so.
    """

    mode: BalanceMode = "on"
    moves_at_once: MovesAtOnce = 4
    copy_bytes_per_s: CopyPace = 64 * 1024 * 1024
    stable_ms: StableMs = 60_000
    disk_used_percent_max: UsedPercent = 85


class PlannedMove(msgspec.Struct, frozen=True):
    """A partition's replicas go from the nodes ``replicas`` to ``target`` (node ids, the home of the leader first).

    ``copied_bytes``: the bytes that the move would copy now. ``why``: a ``disk`` is full; two replicas are in one
    ``zone``; a node holds more than others (``spread``); only the order changes, so that homes of leaders are spread
    (``home``).
    """

    topic: str
    partition: int
    replicas: list[str]
    target: list[str]
    copied_bytes: int
    why: Literal["disk", "zone", "spread", "home"]


class PlannedTransfer(msgspec.Struct, frozen=True):
    """A partition's leader goes home: from the node that leads to the first of its replicas."""

    topic: str
    partition: int
    leader_node: str
    home: str


class BalancePlan(msgspec.Struct, frozen=True):
    """The plan that would bring the cluster into balance. ``plan`` is the digest of ``moves`` and ``leaders``: to
    balance with it as ``if_plan`` is refused once the plan has changed.

    ``moving`` partitions move now, of which at most ``moving_bytes`` are still to be copied. ``barred``: nodes that get
    no replica, with the reason. ``held``: nodes because of which the cluster begins no move by itself, with the reason;
    an operator may begin the moves. ``is_cut``: the plan reached its bound, and a later plan has the rest.
    """

    plan: str
    settings: BalanceSettings
    moves: list[PlannedMove]
    leaders: list[PlannedTransfer]
    copied_bytes: int
    moving: int
    moving_bytes: int
    barred: dict[str, str]
    held: dict[str, str] = {}
    is_cut: bool = False


class ControllersPlan(msgspec.Struct, frozen=True):
    """The nodes that hold the controller group (``controllers``), and those that would (``target``); ``plan`` is a
    digest. ``outlives_a_zone``: if any one zone, or machine, is lost, a majority of the target is left. ``is_chosen``
    false: the cluster spreads the controllers by itself.
    """

    plan: str
    controllers: list[str]
    target: list[str]
    outlives_a_zone: bool
    is_chosen: bool


class Cluster(msgspec.Struct, frozen=True):
    """The cluster as node ``node_id`` sees it. ``controller``: the leader of the controller group.

    ``nodes`` are ascending by id; ``reassignments`` are those under way; ``controllers`` are the node ids of the
    controller group, while it moves those before and after the move. ``feature_level`` is the one in force, which all
    members support.
    """

    cluster_id: str
    node_id: str
    version: str
    controller: LeaderInfo
    nodes: list[Node]
    reassignments: list[Reassignment] = []
    controllers: list[str] = []
    feature_level: int = 1


class Unready(msgspec.Struct, frozen=True):
    """One reason why a node is not ready. ``part`` is what does not work: ``data`` (records of its partitions),
    ``control`` (sessions, grants, topics), ``node`` (both of these), ``partition`` (some partitions, while all others
    work). ``detail`` is for people; it names no topic, since anyone may ask.
    """

    part: Literal["node", "data", "control", "partition"]
    reason: Literal["stopped", "stopping", "removed", "starting", "loading", "no_controller", "no_leader"]
    detail: str


class PartitionCounts(msgspec.Struct, frozen=True):
    """Numbers of partitions on a node: it has ``replicas`` of them, and leads ``led``. Of those that it leads, ``held``
    have an exclusive holder, and ``under_replicated`` have a replica that is behind. For ``leaderless`` ones it knows
    no leader.

    ``epochs``: the sum of the fencing epochs of all; it grows with each takeover. ``catalog_index``: the newest
    decision of the controller that the node acts on. ``leaderless_names``: the first of the leaderless ones, as
    topic/number.
    """

    replicas: int
    led: int
    held: int
    under_replicated: int
    leaderless: int
    epochs: int
    catalog_index: int
    leaderless_names: list[str] = []


class DiskSpace(msgspec.Struct, frozen=True):
    """The file system with the node's data, and how many bytes of it are the node's segments and log."""

    free_bytes: int
    total_bytes: int
    stored_bytes: int


class Latencies(msgspec.Struct, frozen=True):
    """A histogram of durations since the node was started: ``counts[k]`` durations were up to ``up_to_us[k]``
    (microseconds) and above the bound before; the last count has those above all bounds.
    """

    up_to_us: list[int]
    counts: list[int]


class NodeState(msgspec.Struct, frozen=True):
    """The counters of a node. ``at_ms``: its wall clock; records, bytes and refused writes count from its start.

    ``appends``: durations from request to answer. ``syncs``: durations of the log's syncs, each for all groups of the
    node. ``certificates``: by use (``raft``, ``http``), when the certificate expires, in milliseconds since 1970.
    ``refused_certificates``: the uses whose certificate files the node refused when it read them last; it goes on with
    the ones before. ``doubled_by``: base URL of another process that registered with this node's id within the last
    30 s; None: of none.
    """

    node_id: str
    version: str
    at_ms: int
    partitions: PartitionCounts
    disk: DiskSpace
    appended_records: int
    appended_bytes: int
    refused_writes: int
    appends: Latencies
    syncs: Latencies
    connections: int
    certificates: dict[str, int] = {}
    refused_certificates: list[str] = []
    doubled_by: str | None = None


class NodeStates(msgspec.Struct, frozen=True):
    """The counters of the nodes, ascending by id. ``missing``: nodes that were asked and did not answer."""

    nodes: list[NodeState]
    missing: list[str] = []


class NodeSetting(msgspec.Struct, frozen=True):
    """A setting that a node runs with: ``name`` as in its configuration (limits.wal_bytes_max). ``default`` is the
    value where the configuration gives none. A ``value`` or ``default`` of None: there is none.
    """

    name: str
    value: str | int | bool | list[str] | None
    default: str | int | bool | list[str] | None


class NodeSettings(msgspec.Struct, frozen=True):
    """The settings of a node, ascending by name."""

    node_id: str
    settings: list[NodeSetting]


class Settings(msgspec.Struct, frozen=True):
    """The settings of the nodes, ascending by id. ``missing``: nodes that were asked and did not answer."""

    nodes: list[NodeSettings]
    missing: list[str] = []


class NotedBackup(msgspec.Struct, frozen=True):
    """A backup, as its maker told the cluster. It has everything up to ``cut_ms`` (milliseconds since 1970), and took
    ``took_ms``. ``records`` and ``bytes`` are those that the place has for it. ``principal`` told the cluster.
    """

    place: str
    name: str
    cut_ms: int
    took_ms: int
    topics: int
    records: int
    bytes: int
    principal: str | None = None


class NotedBackups(msgspec.Struct, frozen=True):
    """The last backup in each place, the newest first."""

    backups: list[NotedBackup]


class ClusterState(msgspec.Struct, frozen=True):
    """One reading of everything: the cluster as the answering node sees it, and the counters of each node."""

    cluster: Cluster
    nodes: list[NodeState]
    missing: list[str] = []


class Stall(msgspec.Struct, frozen=True):
    """A time, of ``held_ms``, in which a node's event loop stood still because a computation ran on it. ``at_ms``: its
    end, by the node's wall clock. ``request``, ``route`` and ``body_bytes`` are those of the request that was worked
    on, None if there was none, or it is not known. ``stack``: the innermost functions, the running one first; empty if
    the stall ended before they were looked at.
    """

    at_ms: int
    held_ms: int
    route: str | None
    body_bytes: int | None
    request: str | None
    stack: list[str]


class Stalls(msgspec.Struct, frozen=True):
    """The latest stalls of one node, the latest first."""

    node_id: str
    stalls: list[Stall]

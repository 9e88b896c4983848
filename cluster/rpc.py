"""The messages between nodes over the Raft connections, and their encoding. Clients never see these messages."""

from collections.abc import Callable
from typing import Literal

import msgspec

from ..partition.api.cluster import BalanceSettings
from ..partition.api.producers import ProducerOnPartition
from ..partition.api.topics import SlotHolder, TopicConfig
from .access.store import PrincipalTable
from .controller.topology.moves import Move
from .controller.topology.nodes import NodeEntry


class Propose(msgspec.Struct, frozen=True, tag="propose"):
    """Propose a command to a group that the receiver leads."""

    group_id: int
    command: bytes
    timeout_ms: int


class Proposed(msgspec.Struct, frozen=True, tag="proposed"):
    """Answer to Propose: committed. ``result`` is the machine's answer, encoded as results of its commands are."""

    result: bytes


class NotLeading(msgspec.Struct, frozen=True, tag="not_leading"):
    """Answer to Propose: surely not proposed. ``leader`` is the node that leads, if known."""

    leader: str | None


class OutcomeUnknown(msgspec.Struct, frozen=True, tag="outcome_unknown"):
    """Answer to Propose: proposed, but not decided in time."""


class FollowCatalog(msgspec.Struct, frozen=True, tag="follow_catalog"):
    """Ask a controller for the catalog as soon as it is newer than ``after``, or for the principals as soon as they are
    newer than ``principals_after``; after ``wait_ms`` for neither.
    """

    after: int
    wait_ms: int
    principals_after: int = 0


class Placement(msgspec.Struct, frozen=True):
    """One topic as every node must know it. Entry k of ``replicas`` has the node ids that hold partition k; of
    ``founders``, its first configuration, empty for a node that joins it. ``config_order`` is the log index of the
    command that decided ``config`` and ``is_sealed``; 0: the topic's creation. ``first_slots`` has, by partition, the
    order of the last decision about the slot, while the partition has confirmed none: it may be new, and held already.
    """

    topic: str
    topic_id: int
    config: TopicConfig
    replication_factor: int
    replicas: list[list[str]]
    founders: list[dict[str, int]]
    is_sealed: bool = False
    config_order: int = 0
    first_slots: dict[int, int] = {}


class Catalog(msgspec.Struct, frozen=True, tag="catalog"):
    """All topics and nodes at one index of the controller's log, and who leads the controller group as far as the
    answering node knows. ``removed``: nodes of the past; ``controllers``: who holds, or is to hold, the controller
    group. ``index`` 0: the catalog has no news. ``principals`` None: they have none. ``feature_level``: of the
    cluster, at that index; ``balance``: how it keeps itself in balance.
    """

    index: int
    topics: list[Placement]
    leader: str | None
    term: int
    nodes: list[NodeEntry] = []
    removed: list[str] = []
    controllers: list[str] = []
    moves: list[Move] = []
    principals: PrincipalTable | None = None
    feature_level: int = 1
    balance: BalanceSettings = BalanceSettings()


class DescribeController(msgspec.Struct, frozen=True, tag="ask_standing"):
    """Ask a node whether it knows of a founded cluster."""


Founders = dict[str, int]
"""Node id -> incarnation of its disk. Empty: the group is to be joined."""


class Standing(msgspec.Struct, frozen=True, tag="standing"):
    """Answer to DescribeController: the node is ``new``; ``busy``, about to write down its founders; or ``founded``."""

    state: Literal["new", "busy", "founded"]
    incarnation: int
    founders: Founders = {}


class DescribeGroup(msgspec.Struct, frozen=True, tag="ask_status"):
    """Ask a node for the catalog that it acts on, and for the status of those of these groups that it holds."""

    group_ids: list[int]


class DescribeProducer(msgspec.Struct, frozen=True, tag="ask_producer"):
    """Ask a node for a producer's state on those of these groups that it leads."""

    pid: int
    group_ids: list[int]


class ProducerKnown(msgspec.Struct, frozen=True, tag="producer_known"):
    """Answer to DescribeProducer: the producer's state by group, of the groups that the answering node leads. None:
    the producer is not known there.
    """

    found: list[tuple[int, ProducerOnPartition | None]]


class GroupStatus(msgspec.Struct, frozen=True):
    """The state of a group as a replica knows it. ``leader`` is a node id; ``config_order`` says which configuration of
    the topic is in force. ``log_start`` and ``log_end`` are None from an older node. ``lags``: by other member, the
    committed entries that it lacks on its disk; None from a replica that does not lead.
    """

    group_id: int
    leader: str | None
    term: int
    topic_epoch: int
    slot_mode: str | None
    config_order: int = -1
    holder: SlotHolder | None = None
    log_start: int | None = None
    log_end: int | None = None
    lags: dict[str, int] | None = None


class Status(msgspec.Struct, frozen=True, tag="status"):
    """Answer to DescribeGroup: the catalog index the node acts on, and the asked groups that it holds; and the index of
    the principals that it acts on.
    """

    catalog_index: int
    groups: list[GroupStatus]
    principals_index: int = 0


class AskNode(msgspec.Struct, frozen=True, tag="ask_node"):
    """Ask a node for its report, on which a plan of balance rests. From feature level 2 on."""


class LedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A partition that the answering node leads. ``behind``: the members that could not take over now. ``voters``: the
    voters, if the group moves as far as that node knows; empty otherwise.
    """

    group_id: int
    term: int
    stored_bytes: int
    behind: list[str]
    voters: list[str]


class NodeReport(msgspec.Struct, frozen=True, tag="node_report"):
    """Answer to AskNode. ``up_ms``: since its start; ``syncs`` of its log since then, which took ``syncs_us`` together.

    ``soft_free_bytes``: with less free, its disk takes no appends; ``is_low``: it takes none now.
    """

    up_ms: int
    free_bytes: int
    total_bytes: int
    soft_free_bytes: int
    is_low: bool
    syncs: int
    syncs_us: int
    led: list[LedGroup]
    version: str = ""


class TransferLeaderships(msgspec.Struct, frozen=True, tag="hand_over"):
    """Ask a node to let others lead: (group, term in which it leads, node that shall lead). From level 2 on."""

    groups: list[tuple[int, int, str]]


class LeadershipsTransferred(msgspec.Struct, frozen=True, tag="handed_over"):
    """Answer to TransferLeaderships: the groups whose leadership went to the other nodes."""

    group_ids: list[int]


Message = (
    Propose
    | Proposed
    | NotLeading
    | OutcomeUnknown
    | FollowCatalog
    | Catalog
    | DescribeController
    | Standing
    | DescribeProducer
    | ProducerKnown
    | DescribeGroup
    | Status
    | AskNode
    | NodeReport
    | TransferLeaderships
    | LeadershipsTransferred
)

encode: Callable[[Message], bytes] = msgspec.msgpack.Encoder().encode
"""Bytes of a message."""
decode: Callable[[bytes], Message] = msgspec.msgpack.Decoder(Message).decode
"""Inverse of encode. Raises msgspec.DecodeError (a ValueError) on anything else."""

"""The values that the client's methods return: frozen, with the field names of docs/openapi.yaml.

A client ignores fields that a newer node adds.
"""

from .client.api.tail import Tail, TailRecord
from .client.producer.metrics import ProducerMetrics
from .partition.api.cluster import Cluster, LeaderInfo, Node, Reassignment, Relocation, RemovalPlan
from .partition.api.ownership import (
    CancelledTicket,
    Evicted,
    Fences,
    FenceTenure,
    Grant,
    GroupList,
    HeldGrant,
    ListedGroup,
    ListedSession,
    OwnResult,
    Position,
    Resource,
    SessionFenced,
    SessionInfo,
    SessionList,
    Sever,
    Ticket,
    TopicFenced,
)
from .partition.api.producers import BatchStatus, ProducerList, ProducerOnPartition, ProducerPair, ProducerStatus
from .partition.api.records import GroupPosition, Offsets, PartitionContents, RefusedWrite, RefusedWrites, Trimmed
from .partition.api.topics import Mode, PartitionState, SlotHolder, Topic, TopicConfig, TopicSummary

__all__ = [
    "BatchStatus", "CancelledTicket", "Cluster", "Evicted", "FenceTenure", "Fences", "Grant", "GroupList",
    "GroupPosition", "HeldGrant", "LeaderInfo", "ListedGroup", "ListedSession", "Mode", "Node", "Offsets",
    "OwnResult", "PartitionContents", "PartitionState", "Position", "ProducerList", "ProducerMetrics",
    "ProducerOnPartition", "ProducerPair", "ProducerStatus", "Reassignment", "RefusedWrite", "RefusedWrites",
    "Relocation", "RemovalPlan", "Resource", "SessionFenced", "SessionInfo", "SessionList", "Sever",
    "SlotHolder", "Tail", "TailRecord", "Ticket", "Topic", "TopicConfig", "TopicFenced", "TopicSummary",
    "Trimmed",
]  # fmt: skip

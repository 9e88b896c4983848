"""What the HTTP interface may ask of a node.

Every method raises subclasses of StockadeError only. A method that needs a leader raises NotLeaderOrFollower (with the
leader's base URL when known) where this node does not lead: the HTTP interface then passes the request on, once.
"""

from collections.abc import Sequence
from typing import Protocol

from ..partition.commands import Appended, Offset, Stamp, Token
from ..partition.records import Batch
from ..partition.segments import Slice
from .model import (
    ClusterInfo,
    GrantInfo,
    Leader,
    Mode,
    ProducerPair,
    SessionInfo,
    TicketInfo,
    TopicConfig,
    TopicInfo,
    TopicSummary,
)


class Partition(Protocol):
    """One partition as this node can reach it. ``config`` is its topic's."""

    topic: str
    topic_id: int
    partition: int
    config: TopicConfig

    def leader(self) -> Leader:
        """Who leads, as far as this node knows."""
        ...

    async def append(
        self,
        batch: Batch,
        *,
        topic_id: int | None,
        token: Token | None,
        stamp: Stamp | None,
        if_log_end: Offset | None,
    ) -> Appended:
        """Propose one validated batch and wait for the verdict of apply (SEMANTICS 5.8)."""
        ...

    async def read(
        self, offset: Offset | None, *, max_bytes: int, min_bytes: int, max_wait_ms: int, local: bool
    ) -> Slice:
        """Committed batches from ``offset`` (None: log end); linearizable unless ``local`` (SEMANTICS 5.10).

        Waits up to ``max_wait_ms`` until ``min_bytes`` are there. Raises OffsetOutOfRange. ``offset`` -1 means log
        start.
        """
        ...

    async def read_tail(self, count: int) -> tuple[Slice, int]:
        """The batches that hold the last ``count`` records, and topic_epoch; linearizable (SEMANTICS 5.12)."""
        ...

    async def find_offset(self, timestamp_ms: int | None) -> tuple[Offset, int | None, Offset, Offset]:
        """(offset, its timestamp, log_start, log_end) of the first record at or after ``timestamp_ms``; offset -1 if
        none.

        None asks for the first record with the greatest timestamp. Linearizable.
        """
        ...


class Service(Protocol):
    """A node, as the HTTP interface sees it."""

    node_id: str

    def cluster(self) -> ClusterInfo:
        """As this node sees it; asks nobody."""
        ...

    def ready(self) -> str | None:
        """None when the node knows a controller leader and its replicas are loaded; otherwise what is missing."""
        ...

    def controller(self) -> Leader:
        """Who leads the controller group, as far as this node knows."""
        ...

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> Partition:
        """The partition as this node can reach it. Raises UnknownTopicOrPartition, InconsistentTopicId, and
        NotLeaderOrFollower when another node must be asked.
        """
        ...

    async def list_topics(self) -> list[TopicSummary]:
        """Ascending by name; linearizable."""
        ...

    async def get_topic(self, name: str) -> TopicInfo:
        """Definition and leaders."""
        ...

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int | None, config: TopicConfig
    ) -> tuple[TopicInfo, bool]:
        """The topic, and whether it is new; answers when every partition has a leader."""
        ...

    async def delete_topic(self, name: str, topic_id: int | None) -> None:
        """Log, slots and epochs go; grants on it end."""
        ...

    async def open_session(self, client_id: str, ttl_ms: int) -> SessionInfo:
        """A new session; the ttl is moved into the range that the cluster allows."""
        ...

    async def renew_session(self, session: str) -> SessionInfo:
        """Full ttl from now. Raises UnknownSession, SessionExpired."""
        ...

    async def close_session(self, session: str) -> None:
        """Idempotent; answers when the slots are cleared."""
        ...

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None,
        topic_id: int | None,
    ) -> GrantInfo | TicketInfo:
        """All partitions of the set (None: all of the topic) or none (SEMANTICS 5.2). A ticket after 5 s of
        installing.
        """
        ...

    async def get_ticket(self, ticket: str, session: str, wait_ms: int) -> TicketInfo:
        """State of a ticket. Raises NotFound, ProducerFenced, UnknownSession, SessionExpired."""
        ...

    async def release(self, grant: str, session: str) -> None:
        """Idempotent; answers when the slots are cleared. Raises ProducerFenced (not_holder)."""
        ...

    async def init_producer(
        self, name: str | None, pair: tuple[int, int] | None, timeout_ms: int, nonce: str | None
    ) -> ProducerPair:
        """InitProducerId (SEMANTICS 6.5). Answers when the epoch is installed on every partition where the name is
        enrolled.
        """
        ...

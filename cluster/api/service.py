"""What a front (HTTP today) may ask of a node."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ...partition.api.cluster import Cluster, NodeSetting, PartitionCounts, Unready
from ...partition.api.topics import Topic, TopicPage
from ..access.store import PrincipalTable
from ..measures import Measures
from ..model import NO_PRINCIPAL, By, Leader
from .controller import ControllerApi
from .partition import Partition


class Ledger(Protocol):
    """Acts that no controller decides, in the ledger (controller/ledger.py)."""

    def act(
        self, act: str, topic: str | None, partition: int | None, wanted: dict[str, Any], by: By
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Around an act: the ledger records its intent before the block begins, and its outcome when the block ends,
        with what the block puts into the dictionary. Raises LeaderNotAvailable and LedgerFull: the block did not begin.
        """
        ...


class Service(Protocol):
    """A node, as its fronts see it."""

    node_id: str

    @property
    def ledger(self) -> Ledger: ...

    def at_controller(self) -> ControllerApi:
        """The services of the controller group. Raises NotLeaderOrFollower where this node holds no replica of it, and
        LeaderNotAvailable if it was removed.
        """
        ...

    def cluster(self) -> Cluster:
        """The cluster as this node sees it; asks no other node."""
        ...

    def counts(self) -> PartitionCounts:
        """Counts of the partitions that this node holds."""
        ...

    def unready(self) -> list[Unready]:
        """The parts of the service that the node is not ready for, with the reasons, the weightiest first; empty when
        it knows a controller leader and its replicas are loaded.
        """
        ...

    async def measures(self, *, names: bool = False) -> Measures:
        """The node's own numbers as they are now, for a monitor. ``names``: also those of consumer groups and topics,
        which take some milliseconds of the loop where there are many.
        """
        ...

    def controller(self) -> Leader:
        """The leader of the controller group, as far as this node knows."""
        ...

    @property
    def follow_principals(self) -> Callable[[Callable[[PrincipalTable], None]], None]:
        """Registers a function to call with the controller's principals: now, and whenever newer ones are known."""
        ...

    @property
    def leadership_news(self) -> int:
        """The number of changes of leaders of which this node has learned."""
        ...

    async def await_leadership_news(self, seen: int, timeout_s: float) -> None:
        """Return when ``leadership_news`` is no longer ``seen``, or after ``timeout_s`` seconds."""
        ...

    def held(self, topic: str, partition: int) -> Partition | None:
        """The partition if this node holds a replica of it. None: ``partition`` says where to ask."""
        ...

    async def partition(self, topic: str, partition: int, topic_id: int | None) -> Partition:
        """The partition as this node can reach it. Raises UnknownTopicOrPartition, InconsistentTopicId, and
        NotLeaderOrFollower when another node must be asked.
        """
        ...

    def settings(self) -> list[NodeSetting]:
        """The settings that this node runs with, ascending by name."""
        ...

    def node_at(self, url: str) -> str | None:
        """The id of the other member of the cluster that has this base URL."""
        ...

    async def open_stream(self, node_id: str, protocol: asyncio.Protocol) -> None:
        """Give ``protocol`` an authenticated connection to the front of another node. Raises OSError: nothing of the
        protocol was sent.
        """
        ...

    def accept_streams(self, accept: Callable[[str], asyncio.Protocol | None]) -> None:
        """Serve the connections that other nodes open to this front: ``accept`` makes a protocol for a node id."""
        ...

    async def get_topic(self, name: str, topic_id: int | None = None) -> Topic:
        """A topic with its leaders; asks the controller if this node knows no such topic, or none with ``topic_id``."""
        ...

    async def get_topic_page(self, name: str, first: int, most: int, find: str) -> TopicPage:
        """A topic with ``most`` of its partitions, from the ``first`` on, of those whose number, leader or writer
        contains ``find``. Raises UnknownTopicOrPartition.
        """
        ...

    async def transfer_leader(
        self, topic: str | None, partition: int | None, node_id: str | None, by: By = NO_PRINCIPAL
    ) -> Leader:
        """Let another replica lead a partition (both None: the controller group); answers when it does.

        ``node_id`` None: any other. Raises UnknownTopicOrPartition, NotFound (it is no voter), NotEnoughReplicas
        (there is no other), RequestTimedOut.
        """
        ...

"""What an operator may ask of a node: part of service.Service."""

from collections.abc import Sequence
from typing import Protocol

from .model import ClusterInfo, Leader, Reassignment


class Operating(Protocol):
    """Nodes, replicas and leaders."""

    async def add_node(self, node_id: str, url: str, raft_address: str, zone: str | None) -> ClusterInfo:
        """Make a node known, so that it may come; the same again changes nothing. Raises ThrottlingQuotaExceeded."""
        ...

    async def remove_node(self, node_id: str) -> ClusterInfo:
        """Begin to move everything away from a node; when that is done, it is no member any more. Raises NotFound,
        NotEnoughReplicas.
        """
        ...

    async def reassign(self, topic: str, partition: int, replicas: Sequence[str]) -> Reassignment:
        """Begin to move a partition to these nodes, in place of any move under way. Raises UnknownTopicOrPartition,
        NotFound (a node), InvalidRequest.
        """
        ...

    async def transfer_leader(self, topic: str | None, partition: int | None, node_id: str | None) -> Leader:
        """Let another replica lead a partition (both None: the controller group); answers when it does.

        ``node_id`` None: any other. Raises UnknownTopicOrPartition, NotFound (it is no voter), NotEnoughReplicas
        (there is no other), RequestTimedOut.
        """
        ...

"""Nodes and moves as the controller's leader changes them for an operator."""

from collections.abc import Sequence

from .control import Control
from .membership_commands import AddNode, Arranged, Reassign, RemoveNode
from .model import Reassignment


class Members:
    """The membership's leader. Every call answers when the decision is made, not when it is carried out."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def add(self, node_id: str, url: str, raft: str, zone: str | None) -> None:
        """Raises ThrottlingQuotaExceeded."""
        await self._control.decide(
            lambda now: AddNode(now_ms=now, node_id=node_id, url=url, raft=raft, zone=zone), Arranged
        )

    async def remove(self, node_id: str) -> None:
        """Raises NotFound, NotEnoughReplicas."""
        await self._control.decide(lambda now: RemoveNode(now_ms=now, node_id=node_id), Arranged)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[str]) -> Reassignment:
        """Raises UnknownTopicOrPartition, NotFound, InvalidRequest."""
        wanted = list(replicas)
        await self._control.decide(
            lambda now: Reassign(now_ms=now, topic=topic, partition=partition, replicas=wanted), Arranged
        )
        return Reassignment(topic, partition, wanted)

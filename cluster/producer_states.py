"""What partitions know of a producer, asked of the nodes that lead them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ..partition.errors import LeaderNotAvailable, StockadeError
from . import messages
from .model import PartitionStatus
from .replicas import Replicas
from .router import Router

ASK_AGAIN_S = 0.05
"""Before partitions whose leader was not found are asked again."""


class ProducerStates:
    """Asks, and answers for this node."""

    def __init__(self, node_id: str, router: Router, replicas: Replicas) -> None:
        self._node_id = node_id
        self._router = router
        self._replicas = replicas

    async def here(self, pid: int, group_ids: Iterable[int]) -> messages.ProducerKnown:
        """Of those groups that this node leads; linearizable."""
        found = []
        for group_id in group_ids:
            replica = self._replicas.get(group_id)
            if replica is not None and replica.group.is_leader:
                try:
                    found.append((group_id, await replica.producer(pid)))
                except StockadeError as refusal:
                    assert refusal.retriable, refusal
        return messages.ProducerKnown(found)

    async def ask(self, pid: int, places: Mapping[int, Sequence[str]], timeout_s: float) -> list[PartitionStatus]:
        """Of all these groups, on these nodes, in the order of groups. Raises LeaderNotAvailable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        found: dict[int, PartitionStatus | None] = {}
        while missing := [group_id for group_id in sorted(places) if group_id not in found]:
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise LeaderNotAvailable(f"{len(missing)} partitions have no leader")
            nodes = sorted({node_id for group_id in missing for node_id in places[group_id]})
            asked = [[group_id for group_id in missing if node_id in places[group_id]] for node_id in nodes]
            answers = await asyncio.gather(*(self._ask(*it, pid, remaining) for it in zip(nodes, asked, strict=True)))
            for answer in answers:
                found.update(answer.found)
            if len(found) < len(places):
                await asyncio.sleep(ASK_AGAIN_S)
        return [status for group_id in sorted(found) if (status := found[group_id]) is not None]

    async def _ask(self, node_id: str, group_ids: list[int], pid: int, timeout_s: float) -> messages.ProducerKnown:
        if node_id == self._node_id:
            return await self.here(pid, group_ids)
        try:
            answer = await self._router.ask(node_id, messages.AskProducer(pid, group_ids), timeout_s)
        except (ConnectionError, TimeoutError):
            return messages.ProducerKnown([])
        assert isinstance(answer, messages.ProducerKnown), answer
        return answer

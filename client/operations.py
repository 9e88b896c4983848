"""An operator's orders: nodes, replicas, leaders. Part of Client."""

from collections.abc import Sequence

import msgspec

from .calls import Calls, decode, present
from .model import Cluster, Controller, Move
from .transport import Request


class Operations:
    """A base of Client. Orders answer when they are decided; ``cluster`` tells how far they are carried out."""

    _calls: Calls

    async def cluster(self) -> Cluster:
        """The cluster as some node sees it."""
        return await self._calls.call(Cluster, "GET", "/v1/cluster")

    async def add_node(self, node_id: str, url: str, raft_address: str, zone: str | None = None) -> Cluster:
        """Make a node known, so that it may come; the same again changes nothing."""
        body = {"action": "add", "node_id": node_id, "url": url, "raft_address": raft_address} | present(zone=zone)
        return await self._calls.call(Cluster, "POST", "/v1/cluster/members", body=body)

    async def remove_node(self, node_id: str) -> Cluster:
        """Begin to move everything away from a node. Raises NotFound, NotEnoughReplicas."""
        body = {"action": "remove", "node_id": node_id}
        return await self._calls.call(Cluster, "POST", "/v1/cluster/members", body=body)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[str]) -> Move:
        """Begin to move a partition to these nodes. Raises UnknownTopicOrPartition, NotFound, InvalidRequest."""
        body = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        return await self._calls.call(Move, "POST", "/v1/cluster/reassignments", body=body)

    async def transfer_leader(self, topic: str | None, partition: int | None, node_id: str | None = None) -> Controller:
        """Let another replica lead; answers when it does. Both None: the controller group.

        Without ``node_id`` any other, in one attempt: repeating it would move the leader again.
        """
        body = {"topic": topic, "partition": partition} | present(node_id=node_id)
        path = "/v1/cluster/leaders"
        if node_id is not None:
            return await self._calls.call(Controller, "POST", path, body=body)
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
        return decode(await self._calls.once(request), Controller)

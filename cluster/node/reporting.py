"""The reports of nodes to the controller's leader, about their disks and the groups that they lead; and the leaderships
that nodes transfer when that leader asks them to.
"""

import asyncio
import time
from collections.abc import Iterable

from ...raft.core.group import Group
from ...raft.host import RaftHost
from ...raft.net.rpc import CallRefused
from .. import rpc
from ..discovery.cluster_view import ClusterView
from ..features import SOFTWARE
from ..groups import TRANSFER_S_MAX, Router, transfer_leaderships
from ..replica.replica_manager import ReplicaManager
from .disk_watch import DiskWatch

GROUPS_PER_TURN = 500
"""Groups that are looked at before others get their turn of the event loop."""
ASK_TIMEOUT_S = 2.0
"""A node that has not reported by then counts as away."""


class Reporter:
    """Makes this node's reports and transfers, and asks other nodes for theirs."""

    def __init__(
        self,
        node_id: str,
        host: RaftHost,
        view: ClusterView,
        router: Router,
        replicas: ReplicaManager,
        disk: DiskWatch,
    ) -> None:
        self._node_id = node_id
        self._router = router
        self._host = host
        self._view = view
        self._replicas = replicas
        self._disk = disk
        self.is_leaving: bool = False
        """Whether this node is about to stop: then it reports nothing, counts as away, and no leader is sent to it."""
        self._started_s = time.monotonic()

    async def ask(self, node_id: str) -> rpc.NodeReport | None:
        """The report of a node; None: the node is away."""
        try:
            if node_id == self._node_id:
                return await self.report()
            answer = await self._router.ask(node_id, rpc.AskNode(), ASK_TIMEOUT_S)
        except (ConnectionError, TimeoutError, CallRefused):
            return None
        assert isinstance(answer, rpc.NodeReport), answer
        return answer

    async def send(self, node_id: str, wanted: list[tuple[int, int, str]]) -> list[int]:
        """Ask a node for leadership transfers, each a (group, term, heir); returns the groups that surely went."""
        if node_id == self._node_id:
            return (await self.transfer(wanted)).group_ids
        try:
            answer = await self._router.ask(node_id, rpc.TransferLeaderships(wanted), TRANSFER_S_MAX + ASK_TIMEOUT_S)
        except (ConnectionError, TimeoutError):
            return []
        assert isinstance(answer, rpc.LeadershipsTransferred), answer
        return answer.group_ids

    async def report(self) -> rpc.NodeReport:
        """The report of this node, as of now. Raises CallRefused if the node is about to stop."""
        if self.is_leaving:
            raise CallRefused("this node is about to stop")
        led, moving = [], {move.group_id for move in self._view.moves}
        for number, replica in enumerate(list(self._replicas.all()), start=1):
            group = replica.group
            if group.is_leader:
                voters = list(group.voters) if group.group_id in moving else []
                behind = list(group.out_of_sync)
                led.append(rpc.LedGroup(group.group_id, group.term, replica.log.stored_bytes, behind, voters))
            if number % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        disk, syncs = self._disk, self._host.log.syncs
        return rpc.NodeReport(
            up_ms=int((time.monotonic() - self._started_s) * 1000),
            free_bytes=disk.free_bytes,
            total_bytes=disk.total_bytes,
            soft_free_bytes=disk.soft_free_bytes,
            is_low=disk.state != "ok",
            syncs=sum(syncs.counts),
            syncs_us=int(syncs.total_s * 1_000_000),
            led=led,
            version=SOFTWARE.version,
        )

    async def transfer(self, wanted: Iterable[tuple[int, int, str]]) -> rpc.LeadershipsTransferred:
        """Transfer leaderships, each a (group, term, heir): those that this node has in that term, to heirs that could
        take over at once. Takes TRANSFER_S_MAX at most.
        """
        leaving = [
            (group, heir)
            for group_id, term, heir in wanted
            if (group := self._host.groups.get(group_id)) is not None
            and group.term == term
            and self._is_fit(group, heir)
        ]
        gone = await transfer_leaderships(leaving)
        return rpc.LeadershipsTransferred([group.group_id for group in gone])

    def _is_fit(self, group: Group, heir: str) -> bool:
        """Whether the heir could take over now, by this node's own knowledge: it is newer than the asker's."""
        host = self._host
        able = heir in group.voters and heir in host.connected and heir not in host.disks
        return group.is_leader and able and heir not in group.out_of_sync

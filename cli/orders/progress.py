"""The progress of orders that a running cluster carries out: nodes that leave, and a partition that moves."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import click

from ...client.api.client import Client
from ...partition.api.cluster import Cluster
from ...partition.errors import StockadeError

LOOK_S = 0.2
"""Seconds between two requests that check whether an order is carried out."""
UNSEEN_MAX = 50
"""So many requests in a row without a sign of the order mean that another order has replaced it; after fewer, the asked
node may only not have learned of it yet.
"""
AWAY_LOOKS = 50
"""So many looks in a row see a node away before the command says that it waits for it: a restart is shorter."""


class Leaving:
    """The progress of a removal: ``moved`` of ``total`` groups have moved; ``is_done``: the nodes have left."""

    def __init__(self, ordered: Cluster, node_ids: Sequence[str]) -> None:
        """``ordered``: the cluster in the answer to the order."""
        self._node_ids = frozenset(node_ids)
        self._groups = self._held(ordered)
        self.total: int = len(self._groups)
        self.moved: int = 0
        self.is_done: bool = False
        self._unseen = 0

    def look(self, cluster: Cluster) -> None:
        """Update the progress. ``cluster`` may come from a node that lags behind, so ``moved`` never falls. Raises
        ClickException when another order has called the removal off.
        """
        self.moved = max(self.moved, self.total - len(self._groups & self._held(cluster)))
        listed = [node for node in cluster.nodes if node.node_id in self._node_ids]
        self.is_done = not listed
        staying = [node.node_id for node in listed if not node.draining]
        self._unseen = self._unseen + 1 if staying else 0
        if self._unseen >= UNSEEN_MAX:
            raise click.ClickException(f"{', '.join(staying)}: another order has called the removal off")

    def heirs(self, cluster: Cluster) -> set[str]:
        """The nodes that stay, and hold or take what moves."""
        moving = {node_id for move in cluster.reassignments for node_id in move.replicas}
        controlling = () if self._node_ids.isdisjoint(cluster.controllers) else cluster.controllers
        return moving.union(controlling) - self._node_ids

    def _held(self, cluster: Cluster) -> frozenset[tuple[str, int]]:
        """The groups that still have to move, as (topic, partition); the controller group is ("", 0)."""
        moving = {(each.topic, each.partition) for each in cluster.reassignments}
        return frozenset(moving if self._node_ids.isdisjoint(cluster.controllers) else {*moving, ("", 0)})


class Absent:
    """Says, by ``tell``, for which nodes that are away an order waits; again when it waits for others."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._away: list[str] = []
        self._looks = 0

    def look(self, cluster: Cluster, needed: Collection[str]) -> None:
        """Look whether nodes of ``needed`` are away."""
        away = [node.node_id for node in cluster.nodes if node.node_id in needed and not node.alive]
        self._looks = self._looks + 1 if away == self._away else 0
        self._away = away
        if away and self._looks == AWAY_LOOKS:
            advice = "start what is missing, or also remove what does not come back (`stockade cluster remove`)"
            self._tell(f"waiting for {', '.join(away)}, away: {advice}")


class Moving:
    """Watches a move that was ordered; ``tell`` as for `Absent`."""

    def __init__(
        self, client: Client, topic: str, partition: int, wanted: list[str], tell: Callable[[str], object]
    ) -> None:
        self._client = client
        self._place = topic, partition
        self._wanted = wanted
        self._absent = Absent(tell)
        self._unseen = 0

    async def is_done(self) -> bool:
        """Whether the replicas are on the wanted nodes. Raises ClickException when another order replaced the move."""
        topic, partition = self._place
        if (await self._client.topic(topic)).partitions[partition].replicas == self._wanted:
            return True
        cluster = await self._client.cluster()
        self._absent.look(cluster, self._wanted)
        moves = {(each.topic, each.partition): each.replicas for each in cluster.reassignments}
        self._unseen = 0 if moves.get(self._place) == self._wanted else self._unseen + 1
        if self._unseen >= UNSEEN_MAX:
            raise click.ClickException(f"{topic}/{partition}: another order has replaced this one")
        return False


async def until(is_done: Callable[[], Awaitable[bool]]) -> None:
    """Ask ``is_done`` until it is True. It has no timeout, because copying has no bound. Retriable refusals are
    retried.
    """
    while True:
        try:
            if await is_done():
                return
        except StockadeError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(LOOK_S)

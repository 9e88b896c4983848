"""Membership changes under load: an operator's orders at a bad moment. None needs root.

The cluster may refuse an order that it cannot carry out; then there is nothing to break.
"""

import random
from collections.abc import Awaitable
from contextlib import suppress

from ...partition.api.topics import PartitionState
from ...partition.errors import StockadeError
from .fault import Arena, Broken, NothingToBreak
from .targets import one, running


async def _partition(arena: Arena, chance: random.Random) -> tuple[str, PartitionState]:
    """A random partition under load that has a leader: its topic, and its state. Raises NothingToBreak."""
    try:
        name = chance.choice(list(arena.topics))
        states = [state for state in (await arena.client.topic(name)).partitions if state.leader_node]
    except StockadeError as error:
        raise NothingToBreak(f"the cluster does not answer: {error}") from error
    if not states:
        raise NothingToBreak("no partition has a leader")
    return name, chance.choice(states)


class TransferLeader:
    """Transfers the leadership of a partition, or of the controller."""

    name = "transfer-leader"
    about = "the leader of a partition, or of the controller, transfers its leadership"

    def why_not(self, _: Arena) -> str | None:
        return None

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Transfer a partition's leadership to another replica at random, or, one time in four, the controller's."""
        name, state = await _partition(arena, chance)
        if chance.random() < 0.25:
            await _order(arena.client.transfer_leader(None, None))
            return Broken("controller leadership transferred", _heal_nothing)
        heir = one([node for node in state.replicas if node != state.leader_node and node in running(arena)], chance)
        await _order(arena.client.transfer_leader(name, state.partition, heir))
        return Broken(f"{name}/{state.partition} leadership transferred to {heir}", _heal_nothing)


class MoveReplica:
    """Moves a replica to a node without one, and back when healed."""

    name = "move-replica"
    about = "a replica moves to another node, and back"

    def why_not(self, arena: Arena) -> str | None:
        return None if len(arena.nodes) > 3 else "a cluster of more than three nodes is needed, to move to"

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        """Move one replica of one partition."""
        name, state = await _partition(arena, chance)
        free = [node for node in running(arena) if node not in state.replicas]
        target, source = one(free, chance), one(state.replicas, chance)
        moved = [target if node == source else node for node in state.replicas]
        await _order(arena.client.reassign(name, state.partition, moved))

        async def heal() -> None:
            with suppress(StockadeError):  # it stays where it is: a place as good as the other
                await arena.client.reassign(name, state.partition, state.replicas)

        return Broken(f"{name}/{state.partition} moves from {source} to {target}", heal)


class RemoveAndAdd:
    """Removes a node from the cluster, and adds it again when healed."""

    name = "remove-node"
    about = "a node is removed under load, and added again"

    def why_not(self, arena: Arena) -> str | None:
        return None if len(arena.nodes) > 3 else "a cluster of more than three nodes is needed, to do without one"

    async def strike(self, arena: Arena, chance: random.Random) -> Broken:
        node = one(running(arena), chance)
        try:
            known = next(each for each in (await arena.client.cluster()).nodes if each.node_id == node)
        except (StockadeError, StopIteration) as error:
            raise NothingToBreak(f"{node} is not known just now") from error
        await _order(arena.client.remove_node(node))

        async def heal() -> None:
            try:
                await arena.client.add_node(node, known.url, known.raft_address, known.zone)
            finally:
                arena.start(node)

        return Broken(f"{node} removed", heal)


async def _order(order: Awaitable[object]) -> None:
    try:
        await order
    except StockadeError as error:
        raise NothingToBreak(f"refused: {error}") from error


async def _heal_nothing() -> None:
    """Do nothing: any replica may lead."""


MEMBERSHIP_FAULTS = (TransferLeader(), MoveReplica(), RemoveAndAdd())

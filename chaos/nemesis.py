"""Kills the leader of some partition and sees it come back."""

from collections.abc import Sequence

import msgspec

from ..client.model import PartitionState
from .scene import Scene
from .waiting import until

FAILOVER_TIMEOUT_S = 60.0
"""Every partition must have another leader this long after its old one was killed, at most."""


class Strike(msgspec.Struct, frozen=True):
    """A leader that was killed. Times as in the history."""

    node: str
    partition: int
    """The partition whose leader was wanted."""
    at_ns: int
    back_ns: int
    led: Sequence[int]
    failovers: int
    """How many of the partitions that it led have had an election since."""


class Target(msgspec.Struct, frozen=True):
    """A node to be killed, because it leads ``partition``; ``led`` are all partitions that it leads."""

    node: str
    partition: int
    led: Sequence[PartitionState]


async def draw_target(scene: Scene) -> Target:
    """The leader of a partition drawn by lot."""
    states = (await scene.client.topic(scene.topic)).partitions
    drawn = scene.chance.choice([state for state in states if state.leader_node is not None])
    node = str(drawn.leader_node)
    return Target(node, drawn.partition, [state for state in states if state.leader_node == node])


async def kill_leader(scene: Scene, target: Target) -> Strike:
    """Kill it at once; returns when the node is back and everything that it led has a newer leader."""
    node, led = target.node, [state.partition for state in target.led]
    pid = scene.processes.kill(node)
    at_ns = scene.history.note("nemesis", "kill", node=node, partition=target.partition).t_mono_ns
    scene.audience.step(f"kill -9 {node}: it led partition {target.partition} and {len(led) - 1} more")
    await scene.processes.back(node, pid)
    back_ns = scene.history.note("nemesis", "back", node=node).t_mono_ns
    scene.audience.step(f"{node} is back and ready")
    await _led_again(scene, target.led)
    return Strike(node, target.partition, at_ns, back_ns, led, len(led))


async def _led_again(scene: Scene, before: Sequence[PartitionState]) -> None:
    async def all_elected() -> bool:
        now = (await scene.client.topic(scene.topic)).partitions
        return all(_has_newer_leader(now[state.partition], state) for state in before)

    await until(all_elected, FAILOVER_TIMEOUT_S, "not every partition of the killed node has a new leader")


def _has_newer_leader(now: PartitionState, before: PartitionState) -> bool:
    return now.leader_node is not None and now.leader_term > before.leader_term

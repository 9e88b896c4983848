"""Kills the leader of a random partition, and waits until it is back and its partitions have new leaders."""

from collections.abc import Sequence

import msgspec

from ...partition.api.topics import PartitionState
from ..system.waiting import until
from .context import DemoContext

FAILOVER_TIMEOUT_S = 60.0
"""Every partition must have a leader of a newer term this long after its leader was killed."""


class LeaderKill(msgspec.Struct, frozen=True):
    """A leader that was killed. Times as in the history."""

    node: str
    partition: int
    """The partition whose leader was chosen."""
    at_ns: int
    back_ns: int
    led: Sequence[int]
    failovers: int
    """Number of partitions that the node led and that have a leader of a newer term since."""


class Target(msgspec.Struct, frozen=True):
    """The leader of ``partition``, to be killed. ``led``: all partitions that it leads."""

    node: str
    partition: int
    led: Sequence[PartitionState]


async def draw_target(context: DemoContext) -> Target:
    """The leader of a random partition."""
    states = (await context.client.topic(context.topic)).partitions
    drawn = context.chance.choice([state for state in states if state.leader_node is not None])
    node = str(drawn.leader_node)
    return Target(node, drawn.partition, [state for state in states if state.leader_node == node])


async def kill_leader(context: DemoContext, target: Target) -> LeaderKill:
    """Kill the node; return when it is ready again and every partition that it led has a newer leader."""
    node, led = target.node, [state.partition for state in target.led]
    pid = context.processes.kill(node)
    at_ns = context.history.note("nemesis", "kill", node=node, partition=target.partition).t_mono_ns
    context.listener.step(f"kill -9 {node}: it led partition {target.partition} and {len(led) - 1} more")
    await context.processes.back(node, pid)
    back_ns = context.history.note("nemesis", "back", node=node).t_mono_ns
    context.listener.step(f"{node} is back and ready")
    await _led_again(context, target.led)
    return LeaderKill(node, target.partition, at_ns, back_ns, led, len(led))


async def _led_again(context: DemoContext, before: Sequence[PartitionState]) -> None:
    async def all_elected() -> bool:
        now = (await context.client.topic(context.topic)).partitions
        return all(_has_newer_leader(now[state.partition], state) for state in before)

    await until(all_elected, FAILOVER_TIMEOUT_S, "not every partition of the killed node has a new leader")


def _has_newer_leader(now: PartitionState, before: PartitionState) -> bool:
    return now.leader_node is not None and now.leader_term > before.leader_term

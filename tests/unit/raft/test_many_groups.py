"""Many groups on real hosts: what a turn has for them goes in one frame, also while a cluster is upgraded."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from stockade.raft.core.group import Committed
from stockade.raft.messages import AckMany, AppendMany

from .cluster import Cluster, MemoryMachine
from .transports import Run

GROUPS = range(100, 116)


async def with_groups(cluster: Cluster) -> str:
    """Open them on every node; returns the node that leads all."""
    for group_id in GROUPS:
        for node, host in cluster.hosts.items():
            cluster.machines[f"{node}/{group_id}"] = MemoryMachine()
            host.open_group(group_id, cluster.founders, cluster.machines[f"{node}/{group_id}"])
    leader = next(iter(cluster.hosts))

    async def lead(group_id: int) -> None:
        groups = {node: host.groups[group_id] for node, host in cluster.hosts.items()}
        while not groups[leader].is_leader:
            await until(lambda: any(group.is_leader for group in groups.values()))
            one = next(group for group in groups.values() if group.is_leader)
            if one is not groups[leader]:
                await asyncio.gather(one.transfer(leader, 5.0), return_exceptions=True)

    await asyncio.gather(*map(lead, GROUPS))
    return leader


def spied(cluster: Cluster) -> list[tuple[str, str, Any]]:
    """What nodes send from now on: source, target, message."""
    sent: list[tuple[str, str, Any]] = []
    for node, host in cluster.hosts.items():
        coalescer = host._parts.runtime.coalescer

        def spy(group_id: int, target: str, message: Any, source: str = node, send: Any = coalescer._send) -> bool:
            sent.append((source, target, message))
            return bool(send(group_id, target, message))

        coalescer._send = spy
    return sent


async def commit_in_all(cluster: Cluster, command: bytes) -> None:
    """Propose a command to each group in one turn of the loop, and wait until every machine has applied it."""

    async def commit(group_id: int) -> None:
        groups = [host.groups[group_id] for host in cluster.hosts.values()]
        while True:
            outcomes = await asyncio.gather(*[group.propose(command, 20.0) for group in groups if group.is_leader])
            if any(isinstance(outcome, Committed) for outcome in outcomes):
                return
            await until(
                lambda: any(group.is_leader for group in groups)
            )  # a busy machine may elect another at any moment

    await asyncio.gather(*map(commit, GROUPS))
    machines = [cluster.machines[f"{node}/{group_id}"] for node in cluster.hosts for group_id in GROUPS]
    await until(lambda: all(command in machine.commands for machine in machines))


def test_entries_of_one_turn_reach_each_follower_in_one_frame_and_are_acked_in_one(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            leader = await with_groups(cluster)
            await commit_in_all(cluster, b"first")
            sent = spied(cluster)
            waiting = set(cluster.hosts) - {leader}
            for number in count():  # on a busy machine another one may lead some groups, or their acks be late
                await commit_in_all(cluster, b"%d" % number)
                for follower in list(waiting):
                    frames = [each for _, target, each in sent if target == follower and isinstance(each, AppendMany)]
                    bundled = max((len(frame.appends) for frame in frames), default=0)
                    acked = any(source == follower and isinstance(each, AckMany) for source, _, each in sent)
                    if bundled > len(GROUPS) // 2 and acked:
                        waiting.remove(follower)
                if not waiting:
                    break
            assert cluster.fatal == []

    run(scenario)


def test_groups_whose_ids_need_more_than_32_bits_replicate_and_are_there_after_a_restart(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of each topic that is created behind 65,535 decisions of the controller. The low halves of their ids are
    those of other groups.
    """
    wide = [1 << 32 | group_id for group_id in GROUPS[:8]]
    monkeypatch.setattr(f"{__name__}.GROUPS", [*GROUPS[:8], *wide])

    async def scenario() -> None:
        async with Cluster(tmp_path) as cluster:
            await with_groups(cluster)
            await commit_in_all(cluster, b"first")
            for node in list(cluster.hosts):
                await cluster.kill(node)
            for node in cluster.founders:
                await cluster.start(node)
            await with_groups(cluster)
            await commit_in_all(cluster, b"second")
            for machine in cluster.machines.values():
                assert [command for command in machine.commands if command in (b"first", b"second")][:1] != [b"second"]
            assert cluster.fatal == []

    run(scenario)


def test_a_node_of_the_previous_release_is_sent_no_coalesced_frames(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("stockade.raft.core.coalescing.SINCE_PROTOCOL", 99)
        async with Cluster(tmp_path) as cluster:
            await with_groups(cluster)
            sent = spied(cluster)
            await commit_in_all(cluster, b"command")
            assert not any(isinstance(message, AppendMany | AckMany) for _, _, message in sent)

    run(scenario)

"""A copy under writes: what comes meanwhile is still in the log when it is installed, so it is the only one."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from stockade.raft.checkpoint.receiver import CheckpointCopy
from stockade.raft.checkpoint.store import Checkpoint
from stockade.raft.core.group import Group

from .test_copies import SETTINGS, agrees, behind

PATIENT = replace(SETTINGS, election_timeout_ms_min=2000, election_timeout_ms_max=4000, heartbeat_ms=200)
"""No other node gets to lead because the machine is busy: the log of a new leader keeps nothing for the copy."""


@pytest.mark.parametrize(("bound", "is_enough"), [(1 << 20, True), (16 << 10, False)])
def test_the_log_keeps_the_entries_after_a_checkpoint_that_is_being_copied_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int, is_enough: bool
) -> None:
    """What came during a copy was gone at its end, so a replica of a partition that takes records needed the next."""
    begun, go_on, installed = asyncio.Event(), asyncio.Event(), list[int]()
    fetch_file, install = CheckpointCopy._fetch_file, Group.install

    async def wait(self: Any, *arguments: Any) -> None:
        begun.set()
        await go_on.wait()
        await fetch_file(self, *arguments)

    def count(self: Group, checkpoint: Checkpoint, directory: Path) -> bool:
        installed.append(checkpoint.index)
        return install(self, checkpoint, directory)

    monkeypatch.setattr(CheckpointCopy, "_fetch_file", wait)
    monkeypatch.setattr(Group, "install", count)

    async def scenario() -> None:
        async with behind(tmp_path, PATIENT) as (cluster, node):
            for host in cluster.hosts.values():
                host._checkpointer._wal_bytes_max = bound
            await cluster.start(node)
            await begun.wait()
            leader = await cluster.led()
            captures = cluster.machines[leader].captures
            await cluster.write(120)
            await until(lambda: cluster.machines[leader].captures >= captures + 3)
            go_on.set()
            await agrees(cluster, node)
            assert (len(installed) == 1) is is_enough

    asyncio.run(scenario())

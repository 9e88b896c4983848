"""What a machine writes is synced a few MiB at a time, so that a checkpoint's sync does not hold up the log's."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from stockade.raft.checkpoint import group_storage
from stockade.raft.core.group import Group, Rejected
from stockade.raft.machine import Image

from ..cluster import GROUP
from ..file_machine import SMALL, FileMachine, SingleNode, single_node

BYTES = 500
"""Fewer than a checkpoint of SMALL waits for."""


class Writing(FileMachine):
    """Counts what it writes, and which of it a thread began to sync, and synced, and which thread."""

    unsynced_bytes = 0

    def __init__(self, fail: OSError | None = None) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.synced_by: list[threading.Thread] = []
        self._fail = fail

    def apply(self, index: int, term: int, command: bytes) -> object:
        self.unsynced_bytes += len(command)
        return super().apply(index, term, command)

    def begin_sync(self) -> Callable[[], None] | None:
        self.begun.append(self.unsynced_bytes)
        self.unsynced_bytes = 0
        return self._sync

    def _sync(self) -> None:
        if self._fail is not None:
            raise self._fail
        self.synced_by.append(threading.current_thread())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_storage, "UNSYNCED_BYTES", BYTES)


async def leading(node: SingleNode, machine: Writing) -> Group:
    group = node.host.open_group(GROUP, {"n1": node.host.incarnation}, machine)
    await until(lambda: group.is_leader and group.ready)
    return group


def test_written_bytes_are_synced_early_at_the_bound_in_a_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            machine = Writing()
            group = await leading(node, machine)
            await group.propose(bytes(BYTES - 1), 5.0)
            await group.propose(b"", 5.0)
            assert machine.begun == []
            await group.propose(b"1", 5.0)
            await until(lambda: len(machine.synced_by) == 1)
            await group.propose(bytes(BYTES), 5.0)
            await until(lambda: len(machine.synced_by) == 2)
            assert machine.begun == [BYTES, BYTES]
            assert threading.main_thread() not in machine.synced_by
            assert machine.captures == 0

    asyncio.run(scenario())


def test_a_group_that_writes_nothing_is_not_synced_with_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            machine, idle = Writing(), Writing()
            node.host.open_group(GROUP + 1, {"n1": node.host.incarnation}, idle)
            group = await leading(node, machine)
            await group.propose(bytes(BYTES), 5.0)
            await until(lambda: bool(machine.synced_by))
            assert idle.begun == []

    asyncio.run(scenario())


def test_files_of_other_groups_are_synced_between_the_checkpoints_of_a_round(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path, groups=(GROUP + 1, GROUP + 2)) as node:
            machine, seen = Writing(), list[int]()
            await leading(node, machine)
            take = node.host._checkpointer._take

            async def taking(group_id: int) -> bool:
                seen.append(len(machine.begun))
                machine.unsynced_bytes = BYTES
                return await take(group_id)

            node.host._checkpointer._take = taking  # type: ignore[method-assign]
            for group_id in (GROUP + 1, GROUP + 2):
                node.host._parts.storage.open_groups[group_id].make_due()
            await until(lambda: len(machine.begun) == 2)
            assert seen == [0, 1]

    asyncio.run(scenario())


def test_a_disk_that_fails_under_an_early_sync_stops_the_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            failure = OSError(5, "Input/output error")
            group = await leading(node, Writing(failure))
            group.submit(bytes(BYTES), 5.0, lambda outcome: None)
            await until(lambda: node.fatal == [failure])
            assert isinstance(await group.propose(b"later", 5.0), Rejected)

    asyncio.run(scenario())


def test_a_checkpoint_comes_before_the_sync_that_it_includes(tmp_path: Path) -> None:
    class Captured(Writing):
        def capture(self) -> Image:
            self.unsynced_bytes = 0
            return super().capture()

    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            machine = Captured()
            group = await leading(node, machine)
            await group.propose(bytes(SMALL.checkpoint_bytes), 5.0)
            await until(lambda: group._node.log.origin.index > 1)
            assert (machine.captures, machine.begun) == (1, [])

    asyncio.run(scenario())

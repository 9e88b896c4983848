"""When a checkpoint is due: by the work of a restart, and by the disk space that it would set free."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from stockade.raft.checkpoint import group_storage
from stockade.raft.checkpoint.group_storage import ENTRY_BYTES, STATE_SHARE, OpenGroup

from ..cluster import GROUP
from ..file_machine import SMALL, FileMachine, single_node


class Dropping(FileMachine):
    """A machine that drops a hundred bytes of files with every command."""

    reclaimable = 0

    def apply(self, index: int, term: int, command: bytes) -> object:
        self.reclaimable += 100
        return super().apply(index, term, command)


def kept_of(machine: FileMachine, directory: Path, checkpoint_bytes: int) -> tuple[OpenGroup, list[int]]:
    """What counts, and at which commands it said that a checkpoint is due."""
    asked: list[int] = []
    machine.start(directory)
    return OpenGroup(machine, None, lambda: asked.append(machine.count), checkpoint_bytes), asked  # type: ignore[arg-type]


def test_bytes_that_a_checkpoint_would_free_count_like_applied_bytes(tmp_path: Path) -> None:
    machine = Dropping()
    kept, asked = kept_of(machine, tmp_path, 5 * (ENTRY_BYTES + 101))
    for index in range(1, 6):
        machine.apply(index, 1, b"x")
        kept.applied(1, 1)
    assert (asked, kept.is_due) == ([5], True)
    machine.reclaimable = 0
    assert not kept.is_due


def test_an_entry_counts_once_however_many_commands_share_it(tmp_path: Path) -> None:
    kept, _ = kept_of(FileMachine(), tmp_path, 2 * ENTRY_BYTES + 6)
    kept.applied(entries=2, size=5)
    assert not kept.is_due
    kept.applied(entries=0, size=1)
    assert kept.is_due


def test_a_large_state_is_not_encoded_again_for_little(tmp_path: Path) -> None:
    machine = FileMachine()
    kept, asked = kept_of(machine, tmp_path, ENTRY_BYTES)
    kept.in_force(1, (2 * ENTRY_BYTES + 2) // STATE_SHARE + 1)
    for index in range(1, 4):
        machine.apply(index, 1, b"x")
        kept.applied(1, 1)
    assert asked == [3]
    kept.applied_bytes = 0
    kept.make_due()
    assert kept.is_due


def test_the_size_of_a_state_is_known_from_each_checkpoint_on_and_after_a_restart(tmp_path: Path) -> None:
    async def scenario(count: int) -> None:
        async with single_node(tmp_path) as node:
            kept, store = node.host._parts.storage.open_groups[GROUP], node.host._parts.storage.store
            await node.commit(count)
            await until(lambda: kept.state_bytes > 0)
            checkpoint = store.read(GROUP)
            assert checkpoint is not None
            assert kept.state_bytes == len(checkpoint.state)

    asyncio.run(scenario(21))
    asyncio.run(scenario(0))


def test_a_restart_applies_little_again_however_many_groups_there_are_and_however_small_their_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_storage, "RECORDS", 1)
    most = 20 * (ENTRY_BYTES + 10)
    settings = replace(SMALL, checkpoint_bytes=2 * most, wal_bytes_max=most, wal_file_bytes=1 << 20)

    async def scenario() -> None:
        async with single_node(tmp_path, settings, (1, 2, 3)) as node:
            kept = node.host._parts.storage.open_groups
            await node.commit(4, 1, 10)
            await node.commit(7, 2, 10)
            await node.commit(5, 3, 10)
            assert [machine.captures for machine in node.machines.values()] == [0, 0, 0]
            await node.commit(5, 3, 10)
            await until(lambda: [machine.captures for machine in node.machines.values()] == [0, 0, 1])
            assert sum(each.applied_bytes for each in kept.values()) <= most
            await node.commit(10, 1, 10)
            await until(lambda: [machine.captures for machine in node.machines.values()] == [1, 0, 1])

    asyncio.run(scenario())


def test_groups_that_have_applied_little_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_storage, "RECORDS", 1)
    one = ENTRY_BYTES + 10
    share = 4 * one * group_storage.SHARE
    settings = replace(SMALL, checkpoint_bytes=share, wal_bytes_max=3 * one, wal_file_bytes=1 << 20)

    async def scenario() -> None:
        async with single_node(tmp_path, settings, (1, 2, 3)) as node:
            for group_id in (1, 2, 3):
                await node.commit(3, group_id, 10)
            await node.commit(1, 3, 10)
            await until(lambda: node.machines[3].captures == 1)
            await node.commit(1, 3, 10)
            kept = node.host._parts.storage.open_groups[3]
            await until(lambda: not node.host._checkpointer._may_be_due.is_set() and kept.log.origin.index > 1)
            assert [machine.captures for machine in node.machines.values()] == [0, 0, 1]

    asyncio.run(scenario())

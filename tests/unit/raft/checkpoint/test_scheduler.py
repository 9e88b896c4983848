"""Checkpoints are taken while a group works; a restart begins where the last one ends, and the log stays short."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from disk_calls import beside, recorded
from waiting import until

from stockade.raft.checkpoint.group_storage import ENTRY_BYTES
from stockade.raft.checkpoint.store import CheckpointDamaged, CheckpointStore
from stockade.raft.core.group import Committed, Rejected
from stockade.raft.host import RaftSettings
from stockade.raft.machine import Image
from stockade.raft.wal.errors import DiskRefused

from ..cluster import GROUP
from ..file_machine import SMALL, FileMachine, single_node, wal_numbers
from ..wal.test_wal_release import before_each_step


def test_a_restart_applies_only_entries_after_the_checkpoint(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            commands = await node.commit(50)
            await until(lambda: node.group._node.log.origin.index > 20)
            origin = node.group._node.log.origin.index
        async with single_node(tmp_path) as node:
            assert node.group.applied_index >= origin
            assert node.group.voters == ("n1",)
            commands += await node.commit(10)
            assert node.machine.commands() == commands
            assert min(node.machine.applied) > origin

    asyncio.run(scenario())


def test_the_log_and_its_index_in_memory_stay_bounded_under_writes(tmp_path: Path) -> None:
    """D12: the stock library's journal never shrinks, and keeps all its entries in memory."""

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            commands = await node.commit(400)
            await until(lambda: len(wal_numbers(tmp_path)) <= 3)
            journal = node.group._node.log
            assert (node.machine.count, journal.last_index >= 400) == (400, True)
            assert len(journal._locations) < 100
            assert wal_numbers(tmp_path)[0] > 10
        async with single_node(tmp_path) as node:
            assert node.group.applied_index > 300
            await node.commit(1)
            assert node.machine.commands()[:400] == commands

    asyncio.run(scenario())


def test_a_group_that_pins_a_log_that_is_too_long_is_checkpointed(tmp_path: Path) -> None:
    settings = RaftSettings(60, 120, 20, checkpoint_bytes=1 << 30, wal_bytes_max=40_000, wal_file_bytes=4096)

    async def scenario() -> None:
        async with single_node(tmp_path, settings, (GROUP, 8)) as node:
            await node.commit(3, 8)
            await node.commit(400)
            await until(lambda: node.host._parts.storage.log.disk_bytes <= 48_000)
            assert node.machines[8].captures == 1
            assert node.machines[GROUP].captures >= 1
        async with single_node(tmp_path, settings, (GROUP, 8)) as node:
            await until(lambda: node.host.groups[8].ready and node.group.ready)
            assert (node.machines[8].count, node.machine.count) == (3, 400)

    asyncio.run(scenario())


def test_on_a_low_disk_a_checkpoint_frees_dropped_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileMachine, "reclaimable", 1)
    settings = RaftSettings(60, 120, 20, checkpoint_bytes=1 << 30)

    async def scenario() -> None:
        async with single_node(tmp_path, settings) as node:
            await node.commit(3)
            assert node.machine.captures == 0
            node.host.spare_disk(is_low=True, is_full=False)
            await until(lambda: node.machine.captures == 1)

    asyncio.run(scenario())


def test_087_a_checkpoint_of_an_unchanged_state_is_skipped(tmp_path: Path) -> None:
    settings = RaftSettings(60, 120, 20, checkpoint_bytes=1 << 30)

    async def scenario() -> None:
        async with single_node(tmp_path, settings) as node:
            await node.commit(3)
            take, path = node.host._checkpointer._take, CheckpointStore(tmp_path / "groups").path(GROUP)
            assert await take(GROUP)
            written_at, captures = path.stat().st_mtime_ns, node.machine.captures
            assert not await take(GROUP)
            assert (path.stat().st_mtime_ns, node.machine.captures) == (written_at, captures)
            await node.commit(1)
            assert await take(GROUP)

    asyncio.run(scenario())


def test_a_checkpoint_counts_after_its_files_and_names_are_on_disk_and_older_files_go_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dropping(FileMachine):
        def capture(self) -> Image:
            return msgspec.structs.replace(super().capture(), stored=(self.directory / "000000").unlink)

    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            machine = node.machines[GROUP] = Dropping()
            node.host.open_group(GROUP, {"n1": node.host.incarnation}, machine)
            await node.commit(7)
            calls = recorded(monkeypatch)
            assert await node.host._checkpointer._take(GROUP)
            files = ("files-1/000000", "files-1/000001", "files-1", ".", "..", "checkpoint.new")
            counts = [("rename", "checkpoint"), ("sync", ".")]
            assert beside(calls, CheckpointStore(tmp_path / "groups").folder(GROUP)) == [
                *(("sync", path) for path in files),
                *counts,
                ("remove", "files-1/000000"),
            ]

    asyncio.run(scenario())


def test_a_group_that_keeps_the_log_and_is_not_open_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            for group_id in (77, 77, 78, 77):
                assert not await node.host._checkpointer._take(group_id)

    asyncio.run(scenario())
    assert [record.args for record in caplog.records if "not open here" in record.message] == [(77,), (78,)]


def test_only_one_generation_of_files_outlives_an_opening(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            await node.commit(50)
            await until(lambda: node.machine.captures > 0)
        folder = CheckpointStore(tmp_path / "groups").folder(GROUP)
        (folder / "files-7").mkdir()
        (folder / "files-7" / "half").write_text("fetched")
        (folder / "checkpoint.new").write_text("half")
        async with single_node(tmp_path):
            assert {path.name for path in folder.iterdir()} == {"checkpoint", "files-1"}

    asyncio.run(scenario())


def test_an_erased_group_leaves_nothing_and_remains_of_one_are_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = CheckpointStore(tmp_path / "groups").folder(GROUP)
        async with single_node(tmp_path) as node:
            await node.commit(50)
            await until((folder / "checkpoint").exists)
        shutil.copytree(folder, tmp_path / "kept")
        async with single_node(tmp_path) as node:
            await node.host.erase_group(GROUP)
            assert not folder.exists()
            node.open()
            assert node.group.applied_index == 1
            await node.host.erase_group(GROUP)
            shutil.copytree(tmp_path / "kept", folder)
        async with single_node(tmp_path) as node:
            assert node.group.applied_index == 1
            assert not (folder / "checkpoint").exists()

    asyncio.run(scenario())


def written(data: Path) -> list[bytes]:
    """A data folder with a checkpoint, and entries beyond it; the commands in it."""

    async def scenario() -> list[bytes]:
        async with single_node(data) as node:
            commands = await node.commit(60)
            await until(lambda: wal_numbers(data)[0] > 1)
            return commands

    return asyncio.run(scenario())


def refusal(data: Path) -> DiskRefused:
    async def scenario() -> DiskRefused:
        with pytest.raises(DiskRefused) as caught:
            async with single_node(data):
                raise AssertionError("it started")
        return caught.value

    found = asyncio.run(scenario())
    assert "stockade rebuild --data DIR" in str(found)
    return found


def flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("at", [0.0, 0.05, 0.3, 0.7, 1.0])
def test_085_an_unreadable_checkpoint_is_refused_and_never_taken_for_an_empty_state(tmp_path: Path, at: float) -> None:
    """D9: the stock library logs it and goes on, with nothing."""
    written(tmp_path)
    path = CheckpointStore(tmp_path / "groups").path(GROUP)
    flip(path, at)
    assert refusal(tmp_path).path == path


def test_a_missing_checkpoint_is_refused_even_where_the_log_holds_no_entry(tmp_path: Path) -> None:
    """D10: the stock library drops entries whose only snapshot is in memory, and starts empty."""
    written(tmp_path)
    path = CheckpointStore(tmp_path / "groups").path(GROUP)
    path.unlink()
    found = refusal(tmp_path)
    assert found.path == path
    assert "it is missing, and the log builds upon a checkpoint at" in found.fault


def test_a_cut_checkpoint_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    path = CheckpointStore(tmp_path / "groups").path(GROUP)
    path.write_bytes(path.read_bytes()[:-3])
    assert "it ends after" in refusal(tmp_path).fault


def test_the_checkpoint_of_another_group_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    store = CheckpointStore(tmp_path / "groups")
    store.folder(GROUP + 1).mkdir()
    shutil.copy(store.path(GROUP), store.path(GROUP + 1))
    with pytest.raises(CheckpointDamaged, match=f"it is that of group {GROUP}"):
        store.read(GROUP + 1)


def test_a_missing_or_cut_file_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    first = CheckpointStore(tmp_path / "groups").files(GROUP, 1) / "000000"
    content = first.read_bytes()
    first.write_bytes(content[:-1])
    assert isinstance(refusal(tmp_path), CheckpointDamaged)
    first.unlink()
    assert "000000" in refusal(tmp_path).fault


def test_checkpoints_without_their_log_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    shutil.rmtree(tmp_path / "wal")
    assert "the log is missing" in refusal(tmp_path).fault


def test_a_node_that_died_before_its_log_held_anything_starts(tmp_path: Path) -> None:
    """A machine has its folder before the group has its first record: that is no checkpoint, and promises nothing."""
    (CheckpointStore(tmp_path / "groups").begin(GROUP, 1) / "000000").write_bytes(b"begun")

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            assert await node.commit(3) == node.machine.commands()

    asyncio.run(scenario())


def test_dying_at_any_step_of_a_checkpoint_and_of_the_removal_after_it_loses_nothing(tmp_path: Path) -> None:
    """D7: the stock library rewrites its journal in place, and killed midway loses what was committed."""
    data = tmp_path / "data"
    copies: list[Path] = []

    def snapshot() -> None:
        if node_is_checkpointing:
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(data, copies[-1])

    node_is_checkpointing = False

    async def write() -> list[bytes]:
        nonlocal node_is_checkpointing
        async with single_node(data, replace(SMALL, checkpoint_bytes=35 * (100 + ENTRY_BYTES))) as node:
            commands = await node.commit(34)
            with before_each_step(snapshot):
                node_is_checkpointing = True
                commands += await node.commit(1)
                await until(lambda: wal_numbers(data)[0] == 2)
                await node.host.stop()
            return commands

    async def check(copy: Path) -> None:
        async with single_node(copy) as node:
            await until(lambda: node.group.ready)
            assert node.machine.commands() in (commands, commands[:-1])  # the last one is committed meanwhile

    commands = asyncio.run(write())
    assert len(copies) > 20
    assert len({tuple(wal_numbers(copy)) for copy in copies}) > 1
    for copy in copies:
        asyncio.run(check(copy))


def test_a_disk_that_fails_under_a_checkpoint_stops_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    async def scenario() -> None:
        async with single_node(tmp_path) as node:
            monkeypatch.setattr(CheckpointStore, "write", fail)
            await node.commit(20)
            await until(lambda: bool(node.fatal))
            assert wal_numbers(tmp_path) == [1]
            assert isinstance(await node.group.propose(b"later", 5.0), Rejected)

    asyncio.run(scenario())


def test_nothing_is_captured_of_a_machine_that_failed(tmp_path: Path) -> None:
    class Poisoned(FileMachine):
        def apply(self, index: int, term: int, command: bytes) -> object:
            self.count += 1  # half done
            raise ZeroDivisionError

    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            machine = Poisoned()
            group = node.host.open_group(GROUP, {"n1": node.host.incarnation}, machine)
            await until(lambda: group.is_leader)
            await group.propose(bytes(SMALL.checkpoint_bytes), 5.0)
            assert [type(error) for error in node.fatal] == [ZeroDivisionError]
            await asyncio.sleep(0)
            assert machine.captures == 0

    asyncio.run(scenario())


def test_an_error_of_flush_after_apply_stops_the_node(tmp_path: Path) -> None:
    class Full(FileMachine):
        flushed = 0

        def flush(self) -> None:
            if self.count > 1:
                raise OSError(28, "No space left on device")
            self.flushed += self.count

    async def scenario() -> None:
        async with single_node(tmp_path, groups=()) as node:
            machine = Full()
            group = node.host.open_group(GROUP, {"n1": node.host.incarnation}, machine)
            await until(lambda: group.is_leader)
            assert isinstance(await group.propose(b"1", 5.0), Committed)
            assert (machine.flushed, node.fatal) == (1, [])
            group.submit(b"2", 5.0, lambda outcome: None)
            await until(lambda: [type(error) for error in node.fatal] == [OSError])

    asyncio.run(scenario())

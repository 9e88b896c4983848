"""The tombstone of an erased replica: read, written, merged with what the log holds, and removed with its group."""

import asyncio
from pathlib import Path

import pytest

from stockade.raft.checkpoint.group_storage import INDEX_MAX, GroupStorage
from stockade.raft.checkpoint.store import Checkpoint
from stockade.raft.checkpoint.tombstones import Tombstones
from stockade.raft.log.configuration import founding_configuration
from stockade.raft.log.origin import NO_TOMBSTONE, GroupTombstone
from stockade.raft.wal.errors import DiskRefused
from stockade.raft.wal.records import LogEntry, RecoveredGroup
from stockade.raft.wal.wal import Wal


def test_tombstones_are_stored_by_group(tmp_path: Path) -> None:
    Tombstones(tmp_path / "left").write(7, GroupTombstone(5, 4, 99))
    tombstones = Tombstones(tmp_path / "left")
    assert (tombstones.read(7), tombstones.read(8)) == (GroupTombstone(5, 4, 99), NO_TOMBSTONE)


def test_a_group_that_was_not_opened_since_the_start_gets_a_tombstone_too(tmp_path: Path) -> None:
    tombstones = Tombstones(tmp_path / "left")
    recovered = RecoveredGroup(5, None, [LogEntry(2, 3, 0), LogEntry(3, 4, 0)])
    assert tombstones.of_unopened(7, recovered, (4, 2)) == GroupTombstone(5, 4, 3)
    assert tombstones.of_unopened(7, recovered, (6, 99)) == GroupTombstone(6, 6, 99)
    tombstones.write(7, GroupTombstone(6, 5, 1))
    assert tombstones.of_unopened(7, RecoveredGroup(5, None, [LogEntry(2, 3, 0)]), (0, 0)) == GroupTombstone(6, 5, 1)


@pytest.mark.parametrize(("is_damaged", "promised"), [(False, (4, 90)), (True, (4, INDEX_MAX))])
def test_a_tombstone_covers_a_copied_checkpoint_that_the_log_has_no_record_of(
    tmp_path: Path, is_damaged: bool, promised: tuple[int, int]
) -> None:
    """As after a crash: the copy was on disk, and acked, before the record was."""

    broken: list[BaseException] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wal = Wal(tmp_path / "wal", loop, broken.append)
        wal.append(7, 2, 4, b"")
        await wal.close()
        wal = Wal(tmp_path / "wal", loop, broken.append)
        storage = GroupStorage(tmp_path, wal, 1 << 20, lambda: None)
        storage.store.begin(7, 1)
        storage.store.write(Checkpoint(7, 90, 4, founding_configuration({"n1": 1}), 1, b"", ()))
        if is_damaged:
            storage.store.path(7).write_bytes(b"?")
        await storage.erase(7)
        assert Tombstones(tmp_path / "left").read(7) == GroupTombstone(4, *promised)
        await storage.close()
        await wal.close()

    asyncio.run(scenario())
    assert broken == []


def test_a_damaged_tombstone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0000000000000007").write_bytes(b"?")
    with pytest.raises(DiskRefused, match="unreadable"):
        Tombstones(tmp_path).read(7)


def test_only_the_tombstones_of_deleted_groups_are_forgotten(tmp_path: Path) -> None:
    Tombstones(tmp_path / "never").forget(lambda _: True)
    tombstones = Tombstones(tmp_path)
    for group in (0, 7, 8 << 16):
        tombstones.write(group, GroupTombstone(5, 4, 99))
    (tmp_path / "other").write_bytes(b"")
    tombstones.forget(lambda group: group == 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000000000000", "0000000000080000", "other"]
    assert tombstones.read(7) == NO_TOMBSTONE

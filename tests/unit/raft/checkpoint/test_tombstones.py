"""The tombstone of an erased replica: read, written, merged with what the log holds, and removed with its group."""

from pathlib import Path

import pytest

from stockade.raft.checkpoint.tombstones import Tombstones
from stockade.raft.log.origin import NO_TOMBSTONE, GroupTombstone
from stockade.raft.wal.errors import DiskRefused
from stockade.raft.wal.records import LogEntry, RecoveredGroup


def test_what_was_promised_is_kept_by_group(tmp_path: Path) -> None:
    Tombstones(tmp_path / "left").write(7, GroupTombstone(5, 4, 99))
    tombstones = Tombstones(tmp_path / "left")
    assert (tombstones.read(7), tombstones.read(8)) == (GroupTombstone(5, 4, 99), NO_TOMBSTONE)


def test_a_group_that_was_not_opened_since_the_start_is_remembered_too(tmp_path: Path) -> None:
    tombstones = Tombstones(tmp_path / "left")
    assert tombstones.of_unopened(7, RecoveredGroup(5, None, [LogEntry(2, 3, 0), LogEntry(3, 4, 0)])) == GroupTombstone(
        5, 4, 3
    )
    tombstones.write(7, GroupTombstone(6, 5, 1))
    assert tombstones.of_unopened(7, RecoveredGroup(5, None, [LogEntry(2, 3, 0)])) == GroupTombstone(6, 5, 1)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0000000000000007").write_bytes(b"?")
    with pytest.raises(DiskRefused, match="unreadable"):
        Tombstones(tmp_path).read(7)


def test_what_was_promised_in_groups_that_are_gone_is_forgotten_and_nothing_else(tmp_path: Path) -> None:
    Tombstones(tmp_path / "never").forget(lambda _: True)
    tombstones = Tombstones(tmp_path)
    for group in (0, 7, 8 << 16):
        tombstones.write(group, GroupTombstone(5, 4, 99))
    (tmp_path / "other").write_bytes(b"")
    tombstones.forget(lambda group: group == 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000000000000", "0000000000080000", "other"]
    assert tombstones.read(7) == NO_TOMBSTONE

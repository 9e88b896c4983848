"""What is remembered of a replica that was erased."""

from pathlib import Path

import pytest

from stockade.raft.departures import Departures
from stockade.raft.origin import NEVER_LEFT, Left
from stockade.raft.refusal import DiskRefused
from stockade.raft.wal import Entry, RecoveredGroup


def test_what_was_promised_is_kept_by_group(tmp_path: Path) -> None:
    Departures(tmp_path / "left").write(7, Left(5, 4, 99))
    departures = Departures(tmp_path / "left")
    assert (departures.read(7), departures.read(8)) == (Left(5, 4, 99), NEVER_LEFT)


def test_a_group_that_was_not_opened_since_the_start_is_remembered_too(tmp_path: Path) -> None:
    departures = Departures(tmp_path / "left")
    assert departures.of_unopened(7, RecoveredGroup(5, None, [Entry(2, 3, 0), Entry(3, 4, 0)])) == Left(5, 4, 3)
    departures.write(7, Left(6, 5, 1))
    assert departures.of_unopened(7, RecoveredGroup(5, None, [Entry(2, 3, 0)])) == Left(6, 5, 1)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0000000000000007").write_bytes(b"?")
    with pytest.raises(DiskRefused, match="unreadable"):
        Departures(tmp_path).read(7)


def test_what_was_promised_in_groups_that_are_gone_is_forgotten_and_nothing_else(tmp_path: Path) -> None:
    Departures(tmp_path / "never").forget(lambda _: True)
    departures = Departures(tmp_path)
    for group in (0, 7, 8 << 16):
        departures.write(group, Left(5, 4, 99))
    (tmp_path / "other").write_bytes(b"")
    departures.forget(lambda group: group == 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000000000000", "0000000000080000", "other"]
    assert departures.read(7) == NEVER_LEFT

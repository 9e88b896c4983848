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

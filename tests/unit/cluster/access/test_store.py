"""What a node knows of the cluster's principals when it starts again."""

import asyncio
from pathlib import Path

import pytest

from stockade.cluster.access.principals import UNHEARD, Principal
from stockade.cluster.access.store import FILE, PrincipalStore, PrincipalTable
from stockade.raft.wal.errors import DiskRefused

OLD, NEW = PrincipalTable(3, [Principal("old")]), PrincipalTable(4, [Principal("new", ["all"], certificates=["CN:n"])])


def test_a_node_that_starts_again_has_what_it_was_told_last(tmp_path: Path) -> None:
    store = PrincipalStore(tmp_path)
    assert (store.table, store.written_index) == (PrincipalTable(), 0)
    store.take(OLD)
    store.take(NEW)
    assert store.written_index == 0
    asyncio.run(store.write())
    assert store.written_index == 4
    again = PrincipalStore(tmp_path)
    assert (again.table, again.written_index) == (NEW, 4)


def test_a_node_that_is_no_member_has_heard_of_no_principals_until_it_is_told_that_there_are_none(
    tmp_path: Path,
) -> None:
    store = PrincipalStore(tmp_path, is_member=False)
    told: list[PrincipalTable] = []
    store.tell(told.append)
    assert store.written_index == UNHEARD, "so a controller tells it also that there are none"
    store.take(PrincipalTable())
    assert told == [PrincipalTable(UNHEARD), PrincipalTable()]
    asyncio.run(store.write())
    assert PrincipalStore(tmp_path, is_member=False).table == PrincipalTable()


def test_an_older_table_takes_no_place(tmp_path: Path) -> None:
    store = PrincipalStore(tmp_path)
    told: list[PrincipalTable] = []
    store.take(NEW)
    store.tell(told.append)
    for table in (OLD, PrincipalTable(4, [])):
        store.take(table)
    store.take(newest := PrincipalTable(5, []))
    assert told == [NEW, newest]


def test_a_damaged_file_stops_the_start_since_no_principals_would_be_everybody(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"index": 3, "rows": [{"na')
    with pytest.raises(DiskRefused, match="with `stockade rebuild "):
        PrincipalStore(tmp_path)

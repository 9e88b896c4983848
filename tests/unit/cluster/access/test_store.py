"""What a node knows of the cluster's principals when it starts again."""

import asyncio
from pathlib import Path

import pytest

from stockade.cluster.access.principals import UNHEARD, Principal
from stockade.cluster.access.store import FILE, PrincipalStore, PrincipalTable
from stockade.raft.wal.errors import DiskRefused

OLD, NEW = PrincipalTable(3, [Principal("old")]), PrincipalTable(4, [Principal("new", ["all"], certificates=["CN:n"])])


def test_a_restarted_node_has_the_last_written_principals(tmp_path: Path) -> None:
    store = PrincipalStore(tmp_path)
    assert (store.table, store.written_index) == (PrincipalTable(), 0)
    store.take(OLD)
    store.take(NEW)
    assert store.written_index == 0
    asyncio.run(store.write())
    assert store.written_index == 4
    again = PrincipalStore(tmp_path)
    assert (again.table, again.written_index) == (NEW, 4)


def test_a_node_that_is_no_member_knows_of_principals_only_after_the_first_table(
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


def test_an_older_table_of_principals_is_ignored(tmp_path: Path) -> None:
    store = PrincipalStore(tmp_path)
    told: list[PrincipalTable] = []
    store.take(NEW)
    store.tell(told.append)
    for table in (OLD, PrincipalTable(4, [])):
        store.take(table)
    store.take(newest := PrincipalTable(5, []))
    assert told == [NEW, newest]


def test_a_damaged_file_of_principals_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"index": 3, "rows": [{"na')
    with pytest.raises(DiskRefused, match="with `stockade rebuild "):
        PrincipalStore(tmp_path)

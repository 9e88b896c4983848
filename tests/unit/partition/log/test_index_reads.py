"""Indexes of full segments are on disk: the loop reads those that an answer depends on, and no others."""

from pathlib import Path

import pytest

from stockade.partition.log.index import ENTRY

from .test_segments import thirty


def test_a_search_by_time_reads_the_index_of_the_segment_that_has_the_record_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that begins at a time must not hold up all others while years of indexes are read."""
    log, loaded = thirty(tmp_path, monkeypatch)
    assert log.find_timestamp(30) == (-1, None)
    assert loaded.size == 0
    assert log.find_timestamp(13) == (13, 13)
    assert loaded.size == 3 * ENTRY.size
    log.close()

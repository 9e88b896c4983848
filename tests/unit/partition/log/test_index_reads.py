"""Indexes of full segments are on disk: the loop reads only those that an answer depends on, and verifies them."""

from pathlib import Path

import pytest

from stockade.partition.log import segment_files
from stockade.partition.log.index import ENTRY

from .test_segments import SIZE, thirty


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


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_damaged_index_of_a_full_segment_answers_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_cut: bool
) -> None:
    """A bit of it may flip between the start and a read: records would be served at wrong offsets."""
    log, _ = thirty(tmp_path, monkeypatch)
    index = segment_files.files_of(log.full_segments[4])[1]
    content = bytearray(index.read_bytes())
    content[ENTRY.size] ^= 1  # the base offset of the second batch
    index.write_bytes(content[: 2 * ENTRY.size] if is_cut else content)
    with pytest.raises(OSError, match=index.name):
        log.read(12, 10 * SIZE)
    assert log.read(15, 1).next_offset == 16
    log.close()

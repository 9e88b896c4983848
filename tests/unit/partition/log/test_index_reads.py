"""Indexes of full segments are on disk: the loop reads only those that an answer depends on, and verifies them."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stockade.partition.log import segment_files
from stockade.partition.log.index import ENTRY, SegmentIndex

from .test_descriptors import no_descriptor_left
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


@pytest.mark.parametrize("damage", [lambda index: index.write_bytes(bytes(index.stat().st_size)), Path.unlink])
@pytest.mark.parametrize("ask", ["read", "tail", "find_timestamp", "greatest_timestamp"])
def test_each_kind_of_read_reports_a_damaged_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str, damage: Callable[[Path], None]
) -> None:
    """Each read of those records was answered 500, and the leader led on until the scrubber came by, perhaps days."""
    log, _ = thirty(tmp_path, monkeypatch)
    log.trim(13)
    asks: dict[str, Callable[[], object]] = {
        "read": lambda: log.read(13, 1),
        "tail": lambda: log.tail(17),
        "find_timestamp": lambda: log.find_timestamp(13),
        "greatest_timestamp": log.greatest_timestamp,
    }
    told: list[OSError] = []
    log.on_damaged = told.append
    index = segment_files.files_of(log.full_segments[0])[1]
    damage(index)
    with pytest.raises(OSError, match=index.name) as raised:
        asks[ask]()
    assert told == [raised.value]
    log.close()


def test_a_read_without_a_free_descriptor_tells_of_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = thirty(tmp_path, monkeypatch)
    told: list[OSError] = []
    log.on_damaged = told.append
    with no_descriptor_left(0), pytest.raises(OSError, match="Too many open files"):
        log.read(0, 1)
    assert not told
    assert log.read(0, 1).next_offset == 1
    log.close()


def test_threads_that_load_indexes_at_the_same_time_keep_the_cache_and_its_size_consistent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them met KeyError when another had just dropped what it found, and the kept bytes were miscounted."""
    log, _ = thirty(tmp_path, monkeypatch)
    loaded = segment_files.LoadedIndexes(7 * ENTRY.size)
    rounds = [log.full_segments[number:] for number in range(4)]

    def load_all(segments: Sequence[SegmentIndex]) -> None:
        for _ in range(1000):
            for segment in segments:
                assert len(loaded.load(segment)) == segment.index_size

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(load_all, rounds))
    finally:
        sys.setswitchinterval(usual_s)
    assert loaded.size == sum(map(len, loaded._loaded.values())) <= 7 * ENTRY.size
    log.close()

import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_log import MemoryLog

from stockade.partition.commands import Append, Stamp
from stockade.partition.errors import OffsetOutOfRange
from stockade.partition.log import segment_files, segments
from stockade.partition.log.fsutil import PIECES_MAX, write_all
from stockade.partition.log.index import ENTRY, SegmentIndex
from stockade.partition.log.interface import Slice, StoredBatch
from stockade.partition.log.segment_files import LoadedIndexes
from stockade.partition.log.segments import UNWRITTEN_REST_BYTES_MAX, SegmentLog
from stockade.partition.records.batch import STREAM_START, batch_from_columns, stream

from ..driver import NAMED, Driver, state
from .test_descriptors import no_descriptor_left

STAMP = Stamp(NAMED, 3, 17)


def command(timestamps: list[int], stamp: Stamp | None = None, value: bytes = b"v") -> Append:
    count = len(timestamps)
    batch = batch_from_columns([None] * count, [value] * count, timestamps, None, now_ms=0, batch_bytes_max=1 << 20)
    return Append(batch.message, batch.count, batch.crc, 1000, batch.max_timestamp_ms, stamp=stamp)


SIZE = len(command([1]).message)
SUFFIXES = (".arrow", ".index")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SegmentLog]:
    """A log whose segments hold three batches of SIZE."""
    segments = begun(tmp_path / "log", len(STREAM_START) + 3 * SIZE)
    yield segments
    segments.close()


def begun(directory: Path, segment_bytes_max: int) -> SegmentLog:
    """A new log in a directory of its own."""
    directory.mkdir(exist_ok=True)
    log = SegmentLog(segment_bytes_max)
    log.begin(directory)
    return log


def files(log_directory: Path, suffix: str) -> list[str]:
    return sorted(path.name for path in log_directory.glob(f"*{suffix}"))


def test_a_segment_is_an_arrow_stream_on_disk(log: SegmentLog, tmp_path: Path) -> None:
    messages = [command([time], value=b"%d" % time) for time in range(3)]
    for one in messages:
        log.append(one, 0)
    log.flush()
    whole = (tmp_path / "log" / f"{0:020d}.arrow").read_bytes()
    assert whole == STREAM_START + b"".join(one.message for one in messages)
    assert pa.ipc.open_stream(whole).read_all().column("value").to_pylist() == [b"0", b"1", b"2"]


def test_a_run_of_applies_leaves_at_most_its_bound_unwritten(tmp_path: Path) -> None:
    log, batch = begun(tmp_path / "log", 1 << 20), command([1])
    fit = UNWRITTEN_REST_BYTES_MAX // SIZE
    for _ in range(fit):
        log.append(batch, 0)
    log.settle()
    (file,) = (tmp_path / "log").glob("*.arrow")
    assert file.stat().st_size == len(STREAM_START)
    log.append(batch, 0)
    log.settle()
    assert file.stat().st_size == len(STREAM_START) + (fit + 1) * SIZE
    log.close()


def test_a_read_returns_batches_that_are_not_written_to_the_file_yet(log: SegmentLog) -> None:
    log.append(command([1]), 0)
    log.settle()
    assert [len(message) for message in log.read(0, 1 << 20).messages()] == [SIZE]


def test_a_segment_that_is_full_is_followed_by_the_next(log: SegmentLog, tmp_path: Path) -> None:
    for _ in range(7):
        log.append(command([1]), 0)
    log.flush()
    assert files(tmp_path / "log", ".arrow") == [f"{base:020d}.arrow" for base in (0, 3, 6)]
    assert files(tmp_path / "log", ".index") == [f"{base:020d}.index" for base in (0, 3, 6)]
    tables = [pa.ipc.open_stream(path).read_all() for path in sorted((tmp_path / "log").glob("*.arrow"))]
    assert [table.num_rows for table in tables] == [3, 3, 1]


def test_a_batch_larger_than_a_segment_has_one_for_itself(log: SegmentLog, tmp_path: Path) -> None:
    log.append(command([1]), 0)
    large = command([1], value=b"x" * 10_000)
    log.append(large, 0)
    log.append(command([1]), 0)
    assert files(tmp_path / "log", ".arrow") == [f"{base:020d}.arrow" for base in (0, 1, 2)]
    assert log.read(1, 1).messages() == [large.message]


def test_the_index_has_an_entry_of_fixed_size_for_each_batch(log: SegmentLog, tmp_path: Path) -> None:
    first, second = command([5, 9, 7], STAMP), command([2])
    log.append(first, 4)
    log.append(second, 6)
    log.capture(b"")
    entries = list(ENTRY.iter_unpack((tmp_path / "log" / f"{0:020d}.index").read_bytes()))
    start = len(STREAM_START)
    assert entries[0][:-1] == (0, start, NAMED, 1000, 9, 9, 4, 3, len(first.message), first.crc, 17, 3)
    assert entries[1][:-1] == (3, start + len(first.message), -1, 1000, 2, 9, 6, 1, SIZE, second.crc, -1, -1)


def test_each_index_entry_ends_with_the_crc_of_the_file_up_to_there(log: SegmentLog, tmp_path: Path) -> None:
    for time in range(3):
        log.append(command([time]), 0)
        log.capture(b"")
    whole = (tmp_path / "log" / f"{0:020d}.index").read_bytes()
    assert len(whole) == 3 * ENTRY.size
    for end in range(ENTRY.size, len(whole) + 1, ENTRY.size):
        assert zlib.crc32(whole[: end - 4]) == int.from_bytes(whole[end - 4 : end], "little")


def test_a_stored_batch_says_where_it_lies(log: SegmentLog, tmp_path: Path) -> None:
    one = command([5, 9, 7], STAMP)
    log.append(one, 4)
    (batch,) = log.read(0, 1).batches
    assert (batch.base_offset, batch.count, batch.next_offset, batch.stamp, batch.writer_epoch) == (0, 3, 3, STAMP, 4)
    assert (batch.timestamp_ms, batch.max_timestamp_ms, batch.crc) == (1000, 9, one.crc)
    whole = Path(batch.segment).read_bytes()
    assert whole[batch.position : batch.position + batch.length] == one.message
    assert Path(batch.segment).parent == tmp_path / "log"


def bases(found: Slice) -> list[int]:
    return [batch.base_offset for batch in found.batches]


def test_reading_begins_with_the_batch_that_contains_the_offset(log: SegmentLog) -> None:
    for _ in range(8):
        log.append(command([1, 1]), 0)
    found = log.read(7, sys.maxsize)
    assert bases(found) == [6, 8, 10, 12, 14]
    assert (found.log_start, found.log_end, found.next_offset, found.stale) == (0, 16, 16, False)
    assert pa.ipc.open_stream(b"".join(stream(found.messages()))).read_all().num_rows == 10


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(0, 1), (1, 1), (SIZE, 1), (2 * SIZE - 1, 1), (2 * SIZE, 2), (4 * SIZE, 4)]
)
def test_reading_stops_at_max_bytes_but_never_before_the_first_batch(
    log: SegmentLog, max_bytes: int, count: int
) -> None:
    for _ in range(6):
        log.append(command([1]), 0)
    found = log.read(1, max_bytes)
    assert bases(found) == list(range(1, 1 + count))
    assert (found.next_offset, found.size) == (1 + count, count * SIZE)


def test_at_the_log_end_there_is_nothing_yet(log: SegmentLog) -> None:
    assert (log.log_end, bases(log.read(0, 100)), log.read(0, 100).next_offset) == (0, [], 0)
    log.append(command([1]), 0)
    assert (log.log_end, bases(log.read(1, 100)), log.read(1, 100).messages()) == (1, [], [])


@pytest.mark.parametrize("offset", [-1, 3])
def test_offsets_outside_the_log_are_refused(log: SegmentLog, offset: int) -> None:
    log.append(command([1, 1]), 0)
    with pytest.raises(OffsetOutOfRange) as refusal:
        log.read(offset, 100)
    assert refusal.value.fields == {"offset": offset, "log_start": 0, "log_end": 2}


@pytest.mark.parametrize(("count", "expected"), [(1, [4]), (2, [4]), (3, [2, 4]), (6, [0, 2, 4]), (99, [0, 2, 4])])
def test_the_tail_is_the_batches_of_the_last_records(log: SegmentLog, count: int, expected: list[int]) -> None:
    for _ in range(3):
        log.append(command([1, 1]), 0)
    assert bases(log.tail(count)) == expected


def test_times_are_found_though_they_go_back_and_forth(log: SegmentLog) -> None:
    for times in ([5, 3], [4, 9], [9, 1], [2], [12, 7, 12]):
        log.append(command(times), 0)
    assert log.find_timestamp(0) == (0, 5)
    assert log.find_timestamp(6) == (3, 9)
    assert log.find_timestamp(10) == (7, 12)
    assert log.find_timestamp(13) == (-1, None)
    assert log.find_timestamp(None) == (7, 12)


def test_an_empty_log_has_no_time(log: SegmentLog) -> None:
    assert log.find_timestamp(0) == log.find_timestamp(None) == (-1, None)


def test_a_log_does_not_begin_where_there_is_one_already(log: SegmentLog, tmp_path: Path) -> None:
    log.append(command([1]), 0)
    again = SegmentLog()
    again.begin(tmp_path / "log")
    with pytest.raises(FileExistsError):
        again.append(command([1]), 0)
    assert log.read(0, 1).messages() == [command([1]).message]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_a_log_holds_two_files_open_at_most(log: SegmentLog) -> None:
    before = open_files()
    for _ in range(30):
        log.append(command([1]), 0)
        log.read(0, sys.maxsize).messages()
    assert open_files() == before + 2
    log.close()
    log.close()
    assert open_files() == before


def test_a_slice_can_be_read_after_the_log_is_closed_but_not_after_its_files_are_removed(
    log: SegmentLog, tmp_path: Path
) -> None:
    log.append(command([1]), 0)
    found = log.read(0, 1)
    log.close()
    log.close()
    assert found.messages() == [command([1]).message]
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(OSError, match=r"No such file"):
        found.messages()


def test_a_log_that_was_closed_takes_appends_again(log: SegmentLog) -> None:
    log.append(command([1]), 0)
    log.close()
    log.append(command([2]), 0)
    assert log.read(0, sys.maxsize).messages() == [command([1]).message, command([2]).message]


def test_trimming_forgets_whole_segments_and_keeps_their_files_for_the_last_checkpoint(
    log: SegmentLog, tmp_path: Path
) -> None:
    for _ in range(7):
        log.append(command([1]), 0)
    before = files(tmp_path / "log", ".arrow")
    log.trim(4)
    assert (log.log_start, log.log_end, bases(log.read(4, sys.maxsize))) == (4, 7, [4, 5, 6])
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 1)
    image = log.capture(b"")
    assert [file.name for file in image.files][::2] == before[1:]
    assert files(tmp_path / "log", ".arrow") == before
    assert log.reclaimable == sum((tmp_path / "log" / f"{0:020d}{suffix}").stat().st_size for suffix in SUFFIXES)
    image.stored()
    assert (files(tmp_path / "log", ".arrow"), log.reclaimable) == (before[1:], 0)


def test_a_file_that_was_trimmed_after_a_capture_stays_until_the_next(log: SegmentLog, tmp_path: Path) -> None:
    for _ in range(7):
        log.append(command([1]), 0)
    first = log.capture(b"")
    log.trim(7)
    first.stored()
    assert len(files(tmp_path / "log", "")) == 6
    log.capture(b"").stored()
    assert files(tmp_path / "log", "") == []


def test_a_log_that_was_trimmed_to_its_end_appends_at_that_offset(log: SegmentLog, tmp_path: Path) -> None:
    log.append(command([1, 2]), 0)
    log.trim(2)
    assert (log.log_start, log.log_end, bases(log.tail(9))) == (2, 2, [])
    log.trim(1)
    assert (log.log_start, log.append(command([3]), 0), bases(log.read(2, 1))) == (2, 2, [2])
    assert files(tmp_path / "log", ".arrow") == [f"{base:020d}.arrow" for base in (0, 2)]


def test_a_write_error_is_not_swallowed(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(command([1]), 0)

    def full(descriptor: int, pieces: list[bytes]) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="No space"):
        log.flush()


def test_a_short_write_is_continued(log: SegmentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "writev", lambda descriptor, pieces: write(descriptor, b"".join(pieces)[:300]))
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    both = [command([1, 2, 3]), command([4])]
    for one in both:
        log.append(one, 0)
    assert log.read(0, 1 << 20).messages() == [one.message for one in both]


def test_batches_that_are_appended_together_are_written_together(
    log: SegmentLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    writev = os.writev

    def noted(descriptor: int, pieces: list[bytes]) -> int:
        written.append(len(pieces))
        return writev(descriptor, pieces)

    monkeypatch.setattr(os, "writev", noted)
    log.append(command([1]), 0)
    written.clear()
    log.append(command([2]), 0)
    assert written == []
    log.flush()
    log.flush()
    assert written == [2]


def test_unwritten_batches_beyond_the_bound_are_written_without_a_flush(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "UNWRITTEN_BYTES_MAX", 2 * SIZE)
    written: list[bytes] = []
    one = command([1])
    log.append(one, 0)
    monkeypatch.setattr(segments, "write_all", lambda descriptor, pieces: written.extend(pieces))
    log.append(one, 0)
    assert written == [one.message] * 2


def test_more_pieces_than_one_write_takes_are_all_written(tmp_path: Path) -> None:
    pieces = [b"%d," % number for number in range(2 * PIECES_MAX + 1)]
    with (tmp_path / "file").open("wb") as file:
        write_all(file.fileno(), pieces)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_a_segment_that_lost_its_end_is_noticed(log: SegmentLog) -> None:
    log.append(command([1]), 0)
    found = log.read(0, 1)
    os.truncate(found.batches[0].segment, found.batches[0].position + 10)
    with pytest.raises(OSError, match="ends inside the batch at offset 0"):
        found.messages()


def test_a_read_finds_its_place_without_making_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = begun(tmp_path / "log", 40_000)
    for _ in range(500):
        log.append(command([1]), 0)
    made = 0
    batch = SegmentIndex.batch

    def counted(index: SegmentIndex, number: int) -> StoredBatch:
        nonlocal made
        made += 1
        return batch(index, number)

    monkeypatch.setattr(SegmentIndex, "batch", counted)
    found = log.read(137, 1 << 30)
    assert (found.base_offset, found.next_offset, made) == (137, 500, 0)
    assert [b.base_offset for b in found.batches] == list(range(137, 500))
    assert found.size == sum(b.length for b in found.batches)
    log.close()


def test_the_greatest_timestamp_behind_a_trim_is_known_without_a_look_at_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full segment may have 100,000 batches, and this is asked for in the event loop."""
    log = begun(tmp_path, 1 << 20)
    for number in range(20):
        log.append(command([number, number + 1]), 1)
    log.trim(5)

    def looked(index: SegmentIndex, first: int) -> Iterator[int]:
        raise AssertionError(f"at each batch from {first} on")

    with monkeypatch.context() as patched:
        patched.setattr(SegmentIndex, "_max_timestamps", looked)
        assert log.find_timestamp(None) == (39, 20)
    log.append(command([7]), 1)
    assert log.find_timestamp(None) == (39, 20)
    log.trim(40)
    assert log.find_timestamp(None) == (40, 7), "the greatest one was dropped: each batch behind it has to be looked at"
    log.close()


APPENDS = st.lists(st.tuples(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.booleans()), max_size=15)


@settings(max_examples=60, deadline=None)
@given(APPENDS, st.integers(0, 5000), st.integers(0, 60), st.integers(0, 3))
def test_the_log_on_disk_answers_like_the_log_in_memory(
    appends: list[tuple[list[int], bool]], room: int, before: int, first: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk, memory = begun(Path(directory), 2500), MemoryLog()
        for log in (disk, memory):
            log.begin_at(first)
        for number, (times, stamped) in enumerate(appends):
            one = command(times, STAMP if stamped else None)
            assert disk.append(one, number) == memory.append(one, number)
        for log in (disk, memory):
            log.trim(min(before, memory.log_end))
        for offset in range(memory.log_start, memory.log_end + 1):
            assert same(disk.read(offset, room), memory.read(offset, room))
            assert same(disk.tail(offset), memory.tail(offset))
        for time in (None, *range(22)):
            assert disk.find_timestamp(time) == memory.find_timestamp(time)
        disk.close()


def same(one: Slice, other: Slice) -> bool:
    bounds = [(s.log_start, s.log_end, s.next_offset) for s in (one, other)]
    stored = [
        [(b.base_offset, b.count, b.stamp, b.writer_epoch, b.timestamp_ms, b.crc, b.length) for b in s.batches]
        for s in (one, other)
    ]
    return bounds[0] == bounds[1] and stored[0] == stored[1] and one.messages() == other.messages()


def test_a_machine_on_disk_holds_the_state_of_one_in_memory(tmp_path: Path) -> None:
    driver = Driver(new_log=lambda: begun(tmp_path / "log", 500))
    driver.enrol(NAMED)
    driver.seat(1, 1)
    driver.clear(1, 1)
    for number in range(40):
        driver.send(NAMED, 0, number)
    assert state(driver.machine) == state(driver.replayed())
    driver.machine.log.close()  # type: ignore[attr-defined]


def test_written_bytes_count_as_unsynced_until_their_sync_begins(log: SegmentLog) -> None:
    assert log.begin_sync() is None
    log.append(command([1]), 0)
    assert log.unsynced_bytes == 0
    log.flush()
    assert log.unsynced_bytes == SIZE
    sync = log.begin_sync()
    assert sync is not None
    log.append(command([1]), 0)
    log.flush()
    sync()
    assert log.unsynced_bytes == SIZE
    log.capture(b"")
    assert log.unsynced_bytes == 0


def test_an_early_sync_is_of_the_messages_and_a_checkpoint_still_syncs_everything(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix))
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().suffix))
    log.append(command([1]), 0)
    log.flush()
    sync = log.begin_sync()
    assert sync is not None
    sync()
    assert synced == [".arrow"]
    log.capture(b"").sync()
    assert synced == [".arrow", ".arrow", ".index", ""]


def test_an_early_sync_outlives_the_segment_and_leaves_no_file_open(log: SegmentLog, tmp_path: Path) -> None:
    before = open_files()
    log.append(command([1]), 0)
    log.flush()
    sync = log.begin_sync()
    for _ in range(3):
        log.append(command([1]), 0)
    log.flush()
    assert len(files(tmp_path / "log", ".arrow")) == 2
    shutil.rmtree(tmp_path / "log")
    log.close()
    assert sync is not None
    assert open_files() == before + 1
    sync()
    assert open_files() == before


def test_without_a_descriptor_to_spare_the_early_sync_is_left_to_the_checkpoint(
    log: SegmentLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> int:
        raise OSError(24, "Too many open files")

    log.append(command([1]), 0)
    log.flush()
    monkeypatch.setattr(os, "dup", fail)
    assert log.begin_sync() is None


def test_segments_begin_and_are_read_without_a_free_descriptor(tmp_path: Path) -> None:
    segments_of = SegmentLog(SIZE * 3)
    segments_of.restore(tmp_path, [], 0, 0)
    with no_descriptor_left(16):
        for number in range(12):
            segments_of.append(command([number]), 1)
        assert segments_of.find_timestamp(4) == (4, 4)
        image = segments_of.capture(b"")
    assert segments_of.log_end == 12
    assert len(image.files) == 12  # with the schema before them, two batches fit a segment of two files
    segments_of.close()


@given(st.lists(st.tuples(st.integers(0, 2 * SIZE), st.none() | st.floats(0, 1), st.booleans()), max_size=12))
def test_the_bytes_that_a_log_keeps_are_those_of_its_batches_from_log_start_on(
    steps: list[tuple[int, float | None, bool]],
) -> None:
    """Whatever was trimmed or dropped between the looks: what they found before must not count any more."""
    with tempfile.TemporaryDirectory() as root:
        log = begun(Path(root) / "log", len(STREAM_START) + 3 * SIZE)
        kept: list[tuple[int, int]] = []
        for size, trimmed, drops in steps:
            one = command([1, 2], value=b"x" * size)
            kept.append((log.append(one, 0) + 2, len(one.message)))
            if trimmed is not None:
                log.trim(int(trimmed * log.log_end))
            if drops:
                log.drop_local(log.log_start)
            messages = sum(length for end, length in kept if end > log.log_start)
            assert messages <= log.kept_bytes <= messages + len(STREAM_START) * len(steps)
        log.trim(log.log_end)
        assert log.kept_bytes == 0
        log.close()


def thirty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SegmentLog, LoadedIndexes]:
    """A log with ten segments of three batches, whose timestamps are their offsets, and the indexes that it loads."""
    loaded = LoadedIndexes(1 << 30)
    monkeypatch.setattr(segment_files, "_LOADED", loaded)
    log = begun(tmp_path / "log", len(STREAM_START) + 3 * SIZE)
    for number in range(30):
        log.append(command([number]), 0)
    return log, loaded


def test_the_index_of_a_segment_that_was_dropped_leaves_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic with retention is read for years: its old segments must not fill the cache of indexes."""
    log, loaded = thirty(tmp_path, monkeypatch)
    for offset in range(30):
        log.read(offset, 1)
    assert loaded.size == 27 * ENTRY.size
    log.trim(15)
    assert loaded.size == 12 * ENTRY.size
    assert log.read(20, 1).next_offset == 21
    log.begin(tmp_path / "other")
    assert loaded.size == 0


def test_indexes_beyond_the_bound_leave_the_memory_and_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = LoadedIndexes(7 * ENTRY.size)
    monkeypatch.setattr(segment_files, "_LOADED", loaded)
    log = begun(tmp_path / "log", len(STREAM_START) + 3 * SIZE)
    for number in range(30):
        log.append(command([number]), 0)
    for offset in (*range(30), *range(30)):
        assert log.read(offset, 1).next_offset == offset + 1
        assert loaded.size <= 7 * ENTRY.size
    log.close()


def test_an_index_that_two_threads_read_at_a_time_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, read = LoadedIndexes(1 << 30), segment_files._read_file
    log = begun(tmp_path / "log", len(STREAM_START) + 3 * SIZE)
    for number in range(6):
        log.append(command([number]), 0)
    (segment,) = log.full_segments

    def slowly(path: Path, size: int) -> bytes:
        monkeypatch.setattr(segment_files, "_read_file", read)
        loaded.load(segment)  # what another thread does while this one waits for the disk
        return read(path, size)

    monkeypatch.setattr(segment_files, "_read_file", slowly)
    assert loaded.load(segment) == loaded.load(segment)
    assert loaded.size == segment.index_size
    log.close()

"""The files of one partition over many backups: few, whole, and of bounded size."""

import random

import pyarrow as pa
import pytest

from stockade.cli.backup import files as module
from stockade.cli.backup.files import Attempt, FileWriter, PartitionFiles, kept, whole
from stockade.cli.backup.manifest import Damaged, DataFile, PartitionBackup
from stockade.cli.backup.store import Store
from stockade.cli.backup.verify import batches_of, gaps
from stockade.partition.records.batch import SCHEMA

RANDOM = random.Random(0)


def batch(first: int, count: int, size: int = 20) -> pa.RecordBatch:
    columns = [
        pa.nulls(count, pa.binary()),
        pa.array(
            [f"{number} ".encode() + RANDOM.randbytes(size) for number in range(first, first + count)], pa.binary()
        ),
        pa.array(range(first, first + count), SCHEMA.field("timestamp").type),
        pa.nulls(count, SCHEMA.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def values(store: Store, files: list[DataFile]) -> list[int]:
    batches = [batch for file in files for batch in batches_of(store.read(file.path), file)]
    return [int(value.partition(b" ")[0]) for batch in batches for value in batch.column("value").to_pylist()]


class MemoryStore(Store):
    """A place in memory; it counts the bytes that it was given."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.written = 0

    def write(self, path: str, content: bytes | pa.Buffer) -> None:
        assert path not in self.contents, "no file is written twice"
        self.contents[path] = bytes(content)
        self.written += len(self.contents[path])

    def read(self, path: str) -> bytes:
        return self.contents[path]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_many_backups_leave_few_files_and_write_each_record_a_few_times(store: MemoryStore) -> None:
    files: list[DataFile] = []
    for number in range(400):
        made = PartitionFiles(Attempt(store), store, "7-t/0", f"b{number}", files, number * 5)
        made.add(batch(number * 5, 5, 1000), number * 5 + 5)
        files = made.finish(number * 5 + 5)
        assert not list(gaps("t/0", PartitionBackup(0, 0, number * 5 + 5, None, files)))
        assert len(files) <= 10
    assert values(store, files) == list(range(2000))
    assert store.written < 8 * sum(file.bytes for file in files)


def test_a_backup_without_news_writes_nothing(store: MemoryStore) -> None:
    made = PartitionFiles(Attempt(store), store, "7-t/0", "b1", [], 0)
    made.add(batch(0, 5), 5)
    files = made.finish(5)
    assert PartitionFiles(Attempt(store), store, "7-t/0", "b2", files, 5).finish(5) == files
    assert len(store.contents) == 1


@pytest.mark.parametrize("bound", ["FILE_BYTES", "FILE_BYTES_UNPACKED"])
def test_files_have_bounds_also_when_small_ones_are_put_together(
    store: MemoryStore, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, 20_000)
    monkeypatch.setattr(module, "BATCH_BYTES", 1000)
    files: list[DataFile] = []
    for number in range(40):
        made = PartitionFiles(Attempt(store), store, "7-t/0", f"b{number}", files, number * 100)
        made.add(batch(number * 100, 100), number * 100 + 100)
        files = made.finish(number * 100 + 100)
    assert values(store, files) == list(range(4000))
    sizes = [file.bytes if bound == "FILE_BYTES" else 40 * (file.end_offset - file.first_offset) for file in files]
    assert max(sizes) < 30_000


def test_batches_of_one_record_are_written_together(store: MemoryStore) -> None:
    made = PartitionFiles(Attempt(store), store, "7-t/0", "b", [], 0)
    for number in range(1000):
        made.add(batch(number, 1), number + 1)
    (file,) = made.finish(1000)
    assert len(list(batches_of(store.read(file.path), file))) == 1
    assert (file.timestamp_ms_min, file.timestamp_ms_max) == (0, 999)


def test_a_damaged_file_is_never_taken_in(store: MemoryStore) -> None:
    made = PartitionFiles(Attempt(store), store, "7-t/0", "b1", [], 0)
    made.add(batch(0, 5), 5)
    (file,) = made.finish(5)
    content = bytearray(store.read(file.path))
    content[len(content) // 2] ^= 1
    store.contents[file.path] = bytes(content)
    made = PartitionFiles(Attempt(store), store, "7-t/0", "b2", [file], 5)
    made.add(batch(5, 5), 10)
    with pytest.raises(Damaged, match="another SHA-256"):
        made.finish(10)


def test_files_behind_a_missing_one_are_copied_again() -> None:
    files = [DataFile(name, start, start + 5, 9, "", 0, 0) for name, start in (("a", 0), ("b", 5), ("c", 10))]
    missing: list[str] = []
    assert whole(files, {"a": 9, "b": 9, "c": 9}, missing.append) == files
    assert whole(files, {"a": 9, "b": 8, "c": 9}, missing.append) == files[:1]
    assert whole(files, {"c": 9}, missing.append) == []
    assert missing == ["b", "a", "b"]


@pytest.mark.parametrize(("log_start", "names"), [(0, "abc"), (4, "abc"), (5, "bc"), (12, "c"), (15, ""), (16, "")])
def test_files_go_on_to_be_used_from_the_logs_start_on(log_start: int, names: str) -> None:
    files = [DataFile(name, start, start + 5, 9, "", 0, 0) for name, start in (("a", 0), ("b", 5), ("c", 10))]
    assert "".join(file.path for file in kept(PartitionBackup(0, 0, 15, None, files), log_start)) == names
    assert kept(None, log_start) == []


def test_an_empty_batch_adds_nothing() -> None:
    writer = FileWriter(0)
    writer.add(batch(0, 0))
    assert (writer.times, writer.is_full) == (None, False)

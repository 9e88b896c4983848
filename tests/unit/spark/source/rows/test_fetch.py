from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.client.api.fetched import Fetched
from stockade.partition.errors import InconsistentTopicId, OffsetOutOfRange
from stockade.spark.source.planning.ranges import DataLost, Range
from stockade.spark.source.rows import fetch
from stockade.spark.source.rows.fetch import (
    BATCH_BYTES,
    ROWS_MIN,
    SEQUENCES,
    ShortRead,
    coalesce,
    read_pieces,
    read_range,
)

TOPIC_ID = 7


class Log:
    """A partition whose rows hold their own offsets, in batches of these sizes; answers ``answer`` of them at once."""

    def __init__(self, sizes: list[int], answer: int = 2) -> None:
        self._answer = answer
        self._batches: list[tuple[int, pa.RecordBatch]] = []
        self.start = self.end = 0
        for size in sizes:
            self._batches.append((self.end, numbers(self.end, size)))
            self.end += size
        self.asked: list[tuple[str, int, int]] = []

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, topic_id: int | None, meta: bool
    ) -> Fetched:
        assert max_bytes == fetch.FETCH_BYTES_MAX
        self.asked.append((topic, partition, offset))
        if topic_id not in (None, TOPIC_ID):
            raise InconsistentTopicId("made anew", topic_id=TOPIC_ID)
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRange(offset, self.start, self.end)
        found = [each for each in self._batches if each[0] + each[1].num_rows > offset][: self._answer]
        return answer(found[0][0] if found else self.end, [batch for _, batch in found])


def answer(base: int, batches: list[pa.RecordBatch], origins: pa.RecordBatch | None = None) -> Fetched:
    following = base + sum(batch.num_rows for batch in batches)
    return Fetched(base, batches, following, 0, following, False, origins=origins)


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(range(start, start + count), pa.int64())})


def offsets(pieces: list[tuple[int, pa.RecordBatch]]) -> list[int]:
    read: list[int] = []
    for first, batch in pieces:
        values = batch.column("value").to_pylist()
        assert values[0] == first
        read += values
    return read


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_a_range_is_read_exactly_however_its_batches_lie(sizes: list[int], answer: int, data: st.DataObject) -> None:
    log = Log(sizes, answer)
    start = data.draw(st.integers(0, log.end))
    end = data.draw(st.integers(start, log.end))
    pieces = list(read_range(log, Range("t", 3, start, end)))
    assert offsets(pieces) == list(range(start, end))
    assert all(topic == "t" and partition == 3 for topic, partition, _ in log.asked)


def test_an_empty_range_asks_nothing() -> None:
    log = Log([5])
    assert list(read_range(log, Range("t", 0, 2, 2))) == []
    assert log.asked == []


def test_a_log_that_ends_too_early_fails_the_read() -> None:
    pieces = read_pieces(Log([5]), Range("t", 0, 0, 6))
    with pytest.raises(ShortRead, match="nothing comes at offset 5"):
        list(pieces)


def trimmed(start: int) -> Log:
    log = Log([5, 5, 5])
    log.start = start
    return log


def test_records_that_vanished_since_the_plan_fail_the_read_unless_told_otherwise() -> None:
    wanted = Range("t", 0, 2, 14, TOPIC_ID)
    with pytest.raises(DataLost, match="t/0 lost records from 2 on"):
        list(read_range(trimmed(7), wanted))
    assert offsets(list(read_range(trimmed(7), wanted, fail=False))) == list(range(7, 14))
    assert list(read_range(trimmed(15), wanted, fail=False)) == []


def test_a_topic_that_was_made_anew_since_the_plan_has_nothing_of_it() -> None:
    wanted = Range("t", 0, 2, 14, TOPIC_ID + 1)
    with pytest.raises(DataLost, match="t/0 lost records"):
        list(read_range(Log([20]), wanted))
    assert list(read_range(Log([20]), wanted, fail=False)) == []


def test_each_row_has_its_own_sequence_number_and_the_origin_of_its_batch() -> None:
    origins = pa.RecordBatch.from_pylist(
        [
            {"count": 3, "producer_id": 5, "producer_epoch": 1, "first_sequence": SEQUENCES - 2, "writer_epoch": 4},
            {"count": 2, "producer_id": None, "producer_epoch": None, "first_sequence": None, "writer_epoch": 5},
        ]
    )

    class Told(Log):
        def fetch(self, *args: object, **options: object) -> Fetched:
            assert options["meta"]
            return answer(0, [numbers(0, 3), numbers(3, 2)], origins)

    ((_, read),) = read_range(Told([5]), Range("t", 0, 1, 5), meta=True)
    assert read.column("value").to_pylist() == [1, 2, 3, 4]
    assert read.column("sequence").to_pylist() == [SEQUENCES - 1, 0, None, None]
    assert read.column("producer_id").to_pylist() == [5, 5, None, None]
    assert read.column("writer_epoch").to_pylist() == [4, 4, 5, 5]


def test_a_hole_in_the_log_fails_the_read() -> None:
    class Holed(Log):
        def fetch(self, *args: object, **options: object) -> Fetched:
            return answer(3, [numbers(3, 4)])

    with pytest.raises(ShortRead, match="offset 1 was asked for, and the answer starts at 3"):
        list(read_pieces(Holed([]), Range("t", 0, 1, 7)))


def test_small_batches_are_joined_until_they_are_worth_a_batch() -> None:
    pieces = list(read_range(Log([999] * 25, answer=3), Range("t", 0, 0, 24_975)))
    assert [batch.num_rows for _, batch in pieces] == [10_989, 10_989, 2_997]
    assert all(batch.num_rows >= ROWS_MIN for _, batch in pieces[:-1])


@pytest.mark.parametrize("rows", [lambda size: [size], lambda size: [size // 2, size - size // 2]])
def test_a_batch_of_large_rows_ends_at_its_bytes(rows: Callable[[int], list[int]]) -> None:
    def heavy(size: int) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([b"x" * size], pa.large_binary())})

    batches = [heavy(size) for size in rows(BATCH_BYTES)]
    pieces = list(coalesce(enumerate([*batches, heavy(1)])))
    assert [batch.num_rows for _, batch in pieces] == [len(batches), 1]
    assert [first for first, _ in pieces] == [0, len(batches)]

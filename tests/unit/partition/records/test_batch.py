"""What is accepted, and what becomes of it."""

import zlib
from typing import Any

import pyarrow as pa
import pytest

from stockade.partition.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from stockade.partition.log.timestamps import first_row_since
from stockade.partition.records.batch import (
    RECORDS_MAX,
    SCHEMA,
    STREAM_END,
    STREAM_START,
    Batch,
    batch_from_columns,
    decode_batch,
)

from ..arrow import LIMIT, NOW, ROWS, accepted, columns, read_back, values, written


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_batch_is_stored_byte_for_byte_as_it_came(compression: str | None) -> None:
    body = written(columns(), compression=compression)
    batch = accepted(memoryview(body))
    assert body == STREAM_START + batch.message + STREAM_END
    assert (batch.count, batch.received_ms, batch.max_timestamp_ms) == (3, NOW, 7)
    assert batch.crc == zlib.crc32(batch.message)
    assert decode_batch(batch.message).equals(columns())


def test_stored_messages_of_any_compression_make_one_stream() -> None:
    bodies = [written(columns(), compression=codec) for codec in (None, "lz4", "zstd", None)] * 50
    messages = [accepted(body).message for body in bodies]
    assert read_back(messages).equals(pa.Table.from_batches([columns()] * 200))


def test_another_alignment_is_stored_as_it_came() -> None:
    message = pa.ipc.read_message(columns().serialize()).serialize(alignment=64).to_pybytes()
    assert len(message) != len(columns().serialize())
    assert accepted(STREAM_START + message + STREAM_END).message == message


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_stream_that_was_cut_anywhere_is_corrupt(compression: str | None) -> None:
    body = written(columns(), compression=compression)
    accepted(body)
    for length in range(len(body)):
        with pytest.raises(CorruptMessage):
            accepted(body[:length])


def test_framing_of_before_arrow_0_15_is_written_anew() -> None:
    batch = accepted(written(columns(), use_legacy_format=True))
    assert batch == accepted(written(columns()))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_null_timestamps_become_the_moment_of_receipt(compression: str | None) -> None:
    body = written(columns([ROWS[0], ROWS[1], [None, 5, None], ROWS[3]]), compression=compression)
    batch = accepted(body)
    assert values(batch, "timestamp") == [NOW, 5, NOW]
    assert batch.max_timestamp_ms == NOW
    assert read_back([batch.message]).column("headers").to_pylist() == ROWS[3]


def test_timestamps_reach_the_end_of_int64() -> None:
    assert accepted(written(columns([[None], [None], [(1 << 63) - 1], [None]]))).max_timestamp_ms == (1 << 63) - 1


@pytest.mark.parametrize(
    "headers",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.list_(pa.field("item", pa.struct([("key", pa.string()), ("value", pa.binary())]), nullable=False)),
        pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])),
    ],
)
def test_inner_fields_of_headers_may_be_declared_either_way(headers: pa.DataType) -> None:
    schema = SCHEMA.set(3, pa.field("headers", headers)).with_metadata({"made by": "somebody"})
    batch = accepted(written(columns(schema=schema), schema=schema))
    assert values(batch, "headers") == ROWS[3]


def test_a_sliced_batch_keeps_only_its_rows() -> None:
    assert values(accepted(written(columns().slice(1, 1)))) == [None]


def test_columns_become_the_batch_that_a_stream_would_have_been() -> None:
    headers = [None, [], [("k", b"v"), ("", b"")]]
    batch = batch_from_columns(ROWS[0], ROWS[1], ROWS[2], headers, now_ms=NOW, batch_bytes_max=LIMIT)
    assert batch == accepted(written(columns()))


def test_absent_columns_are_null_and_the_time_is_now() -> None:
    batch = batch_from_columns([None, b"k"], [b"v", None], None, None, now_ms=NOW, batch_bytes_max=LIMIT)
    assert values(batch, "timestamp") == [NOW, NOW]
    assert values(batch, "headers") == [None, None]
    assert (values(batch, "key"), values(batch)) == ([None, b"k"], [b"v", None])


@pytest.mark.parametrize(
    ("keys", "items", "times", "headers"),
    [
        ([], [], None, None),
        ([None, None], [b"v"], None, None),
        ([None], [b"v"], [], None),
        ([None], [7], None, None),
        ([None], [b"v"], ["soon"], None),
        ([None], [b"v"], [1 << 63], None),
        ([None], [b"v"], [-1], None),
        ([None], [b"v"], None, [[("k", 7)]]),
        ([None], [b"v"], None, [[("k",)]]),
        ([None], [b"v"], None, [[(None, b"")]]),
        ([None], [b"v"], None, [[("k", None)]]),
        ([None], [b"v"], None, [["k"]]),
        ([None], [b"v"], None, [[("\ud800", b"")]]),
        ([None], [b"v"], None, [[(b"\xff", b"")]]),
    ],
)
def test_columns_that_make_no_batch_are_refused(keys: Any, items: Any, times: Any, headers: Any) -> None:
    with pytest.raises(InvalidRecord):
        batch_from_columns(keys, items, times, headers, now_ms=NOW, batch_bytes_max=LIMIT)


def test_columns_are_bounded_like_streams() -> None:
    def of(count: int, limit: int) -> Batch:
        return batch_from_columns([None] * count, [b""] * count, None, None, now_ms=NOW, batch_bytes_max=limit)

    size = len(of(10, LIMIT).message)
    assert of(10, size).count == 10
    with pytest.raises(MessageTooLarge):
        of(10, size - 1)
    assert of(RECORDS_MAX, 1 << 24).count == RECORDS_MAX
    with pytest.raises(MessageTooLarge) as refusal:
        of(RECORDS_MAX + 1, 1 << 24)
    assert refusal.value.fields == {"limit": RECORDS_MAX, "unit": "records"}


def test_the_first_row_at_or_after_a_time_is_found() -> None:
    batch = accepted(written(columns([[None] * 4, [None] * 4, [5, 3, 9, 9], [None] * 4])))
    assert first_row_since(batch.message, 0, 0) == (0, 5)
    assert first_row_since(batch.message, 6, 0) == (2, 9)
    assert first_row_since(batch.message, 9, 2) == (2, 9)
    assert first_row_since(batch.message, 10, 0) is None

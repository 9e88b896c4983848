import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from stockade.partition import records
from stockade.partition.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from stockade.partition.records import (
    RECORDS_MAX,
    SCHEMA,
    STREAM_END,
    STREAM_START,
    Batch,
    batch_from_columns,
    batch_from_stream,
    decode_batch,
    first_row_since,
    stream,
)

NOW = 1_700_000_000_000
LIMIT = 1 << 20
ROWS: list[list[Any]] = [
    [None, b"a", b"kk"],
    [b"x", None, b""],
    [0, 5, 7],
    [None, [], [{"key": "k", "value": b"v"}, {"key": "", "value": b""}]],
]


def columns(rows: Sequence[Sequence[Any]] = ROWS, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(rows, schema, strict=True)], schema=schema
    )


def written(*batches: pa.RecordBatch, schema: pa.Schema = SCHEMA, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def accepted(body: bytes | memoryview, batch_bytes_max: int = LIMIT) -> Batch:
    return batch_from_stream(body, now_ms=NOW, batch_bytes_max=batch_bytes_max)


def read_back(messages: Sequence[bytes]) -> pa.Table:
    return pa.ipc.open_stream(b"".join(stream(messages))).read_all()


def values(batch: Batch, column: str = "value") -> list[Any]:
    decoded = decode_batch(batch.message).column(column)
    rows: list[Any] = (decoded.view(pa.int64()) if column == "timestamp" else decoded).to_pylist()
    return rows


# What is accepted


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_batch_is_stored_byte_for_byte_as_it_came(compression: str | None) -> None:
    body = written(columns(), compression=compression)
    batch = accepted(memoryview(body))
    assert body == STREAM_START + batch.message + STREAM_END
    assert (batch.count, batch.max_timestamp_ms, batch.crc) == (3, 7, zlib.crc32(batch.message))
    assert decode_batch(batch.message).equals(columns())


def test_stored_messages_of_any_compression_make_one_stream() -> None:
    bodies = [written(columns(), compression=codec) for codec in (None, "lz4", "zstd", None)] * 50
    messages = [accepted(body).message for body in bodies]
    assert read_back(messages).equals(pa.Table.from_batches([columns()] * 200))


def test_another_alignment_is_stored_as_it_came() -> None:
    message = pa.ipc.read_message(columns().serialize()).serialize(alignment=64).to_pybytes()
    assert len(message) != len(columns().serialize())
    assert accepted(STREAM_START + message + STREAM_END).message == message


def test_a_stream_may_end_without_its_marker() -> None:
    body = written(columns())
    assert accepted(body[: -len(STREAM_END)]) == accepted(body)


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


# What is refused


def renamed(name: str) -> pa.Schema:
    return pa.schema([SCHEMA.field(0).with_name(name), *list(SCHEMA)[1:]])


def retyped(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


OTHER_SCHEMAS = {
    "no column": pa.schema([]),
    "a column less": pa.schema(list(SCHEMA)[:3]),
    "a column more": SCHEMA.append(pa.field("extra", pa.int8())),
    "another name": renamed("Key"),
    "another order": pa.schema([SCHEMA.field(i) for i in (1, 0, 2, 3)]),
    "text for bytes": retyped("value", pa.string()),
    "large bytes": retyped("value", pa.large_binary()),
    "a dictionary": retyped("value", pa.dictionary(pa.int8(), pa.binary())),
    "microseconds": retyped("timestamp", pa.timestamp("us", tz="UTC")),
    "no time zone": retyped("timestamp", pa.timestamp("ms")),
    "another time zone": retyped("timestamp", pa.timestamp("ms", tz="+00:00")),
    "a map": retyped("headers", pa.map_(pa.string(), pa.binary())),
    "a header more": retyped("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
    "a large list": retyped("headers", pa.large_list(SCHEMA.field("headers").type.value_type)),
    "no nulls allowed": SCHEMA.set(1, pa.field("value", pa.binary(), nullable=False)),
}


@pytest.mark.parametrize("name", OTHER_SCHEMAS)
def test_another_schema_is_refused(name: str) -> None:
    schema = OTHER_SCHEMAS[name]
    empty = pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)
    with pytest.raises(InvalidRecord):
        accepted(written(empty, schema=schema))


@pytest.mark.parametrize("batches", [[], [columns(), columns()], [columns().slice(0, 0)]])
def test_only_one_batch_with_records_is_taken(batches: list[pa.RecordBatch]) -> None:
    with pytest.raises(InvalidRecord):
        accepted(written(*batches))


def test_a_dictionary_message_is_refused() -> None:
    schema = pa.schema([pa.field("value", pa.dictionary(pa.int8(), pa.binary()))])
    body = written(columns([[b"x"]], schema), schema=schema)
    with pytest.raises(InvalidRecord, match="dictionary message"):
        accepted(STREAM_START + body[schema.serialize().size :])


def test_metadata_of_before_arrow_1_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="V5"):
        accepted(written(columns(), metadata_version=pa.ipc.MetadataVersion.V4))


def test_a_negative_timestamp_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidRecord) as refusal:
        accepted(written(columns([ROWS[0], ROWS[1], [None, -1, -2], ROWS[3]])))
    assert refusal.value.fields["index"] == 1


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}, {"key": "k", "value": None}])
def test_a_null_in_a_header_is_refused_with_its_place(header: dict[str, Any] | None) -> None:
    good = {"key": "k", "value": b"v"}
    with pytest.raises(InvalidRecord) as refusal:
        accepted(written(columns([ROWS[0], ROWS[1], ROWS[2], [None, [good], [good, header]]])))
    assert refusal.value.fields["index"] == 2


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_stream_cut_anywhere_is_never_stored(compression: str | None) -> None:
    body = written(columns(), compression=compression)
    end = len(body) - len(STREAM_END)
    whole = {end, len(body), end + 4}  # without the marker; with it; with half of it, the marker of before Arrow 0.15
    for length in range(len(body)):
        if length not in whole:
            with pytest.raises((CorruptMessage, InvalidRecord)) as refusal:
                accepted(body[:length])
            cut_between_messages = length in (len(STREAM_START), len(STREAM_START) + 4)
            assert isinstance(refusal.value, CorruptMessage) or cut_between_messages


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 8, STREAM_END, b"x" * 100])
def test_bytes_behind_the_end_are_refused(tail: bytes) -> None:
    with pytest.raises(CorruptMessage):
        accepted(written(columns()) + tail)


@pytest.mark.parametrize("body", [b"", b"\0" * 8, b"{}", b"\xff" * 64, STREAM_END, columns().serialize().to_pybytes()])
def test_what_is_no_stream_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptMessage) as refusal:
        accepted(body)
    assert refusal.value.fields["crc"] is None


# Limits


def test_the_size_of_the_message_is_bounded() -> None:
    body = written(columns())
    size = len(accepted(body).message)
    assert len(accepted(body, size).message) == size
    with pytest.raises(MessageTooLarge) as refusal:
        accepted(body, size - 1)
    assert refusal.value.fields == {"limit": size - 1, "unit": "bytes"}


def test_the_number_of_records_is_bounded() -> None:
    def nulls(count: int) -> pa.RecordBatch:
        return columns([[None] * count, [None] * count, [1] * count, [None] * count])

    assert accepted(written(nulls(RECORDS_MAX)), 1 << 24).count == RECORDS_MAX
    with pytest.raises(MessageTooLarge) as refusal:
        accepted(written(nulls(RECORDS_MAX + 1)), 1 << 24)
    assert refusal.value.fields == {"limit": RECORDS_MAX, "unit": "records"}


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_bomb_is_refused_before_it_is_decompressed(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = written(columns([[None], [b"\0" * (32 << 20)], [1], [None]]), compression=compression)
    assert len(body) < LIMIT
    monkeypatch.setattr(records, "_decode", lambda message: pytest.fail("it was decompressed"))
    with pytest.raises(MessageTooLarge) as refusal:
        accepted(body)
    assert refusal.value.fields == {"limit": LIMIT, "unit": "bytes"}


@pytest.mark.parametrize(
    ("claimed", "refusal"),
    [((1 << 62), MessageTooLarge), (-2, CorruptMessage), (-(1 << 63), CorruptMessage), (3, CorruptMessage)],
)
def test_a_false_uncompressed_length_is_refused(claimed: int, refusal: type[Exception]) -> None:
    body = written(columns([[None], [b"v" * 5000], [1], [None]]), compression="lz4")
    frame = bytes.fromhex("04224d18")  # how an LZ4 frame begins
    honest = struct.pack("<q", 5000) + frame
    assert body.count(honest) == 1
    with pytest.raises(refusal):
        accepted(body.replace(honest, struct.pack("<q", claimed) + frame))


def test_a_buffer_that_says_it_is_not_compressed_is_read_as_it_is() -> None:
    """Length -1 in front of a buffer. The timestamp's 8 bytes stand there in the clear."""
    body = written(columns([[None], [b"v"], [77], [None]]), compression="lz4")
    frame = pa.Codec("lz4").compress(struct.pack("<q", 77)).to_pybytes()
    packed = struct.pack("<q", 8) + frame
    assert body.count(packed) == 1
    plain = struct.pack("<qq", -1, 77)
    assert len(frame) > 8
    with pytest.raises(CorruptMessage):  # the buffer's length in the metadata is still that of the frame, and odd
        accepted(body.replace(packed, plain + b"\0"))
    padded = body.replace(packed, plain + b"\0" * (len(frame) - 8))
    assert values(accepted(padded), "timestamp") == [77]


# Columns


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
    assert first_row_since(batch.message, 0) == (0, 5)
    assert first_row_since(batch.message, 6) == (2, 9)
    assert first_row_since(batch.message, 9) == (2, 9)

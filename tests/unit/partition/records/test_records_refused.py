"""What is refused, and how: other schemas, damaged streams, too much of anything."""

import struct
import time
from typing import Any

import pyarrow as pa
import pytest

from stockade.partition.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from stockade.partition.records import batch
from stockade.partition.records.batch import (
    HEADERS_MAX,
    RECORDS_MAX,
    SCHEMA,
    STREAM_END,
    STREAM_START,
    batch_from_columns,
    batch_from_stream,
    message_from_columns,
)
from stockade.partition.records.ipc import METADATA_BYTES_MAX, batch_places

from ..arrow import LIMIT, NOW, ROWS, accepted, columns, fields_bomb, pairs_bomb, values, written


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


def test_a_refusal_does_not_repeat_a_whole_body() -> None:
    schema = pa.schema([pa.field("x" * 10_000, pa.binary())])
    with pytest.raises(InvalidRecord) as stream_refusal:
        accepted(written(columns([[b""]], schema), schema=schema))
    with pytest.raises(InvalidRecord) as columns_refusal:
        batch_from_columns([None], [b""], ["y" * 10_000], None, now_ms=NOW, batch_bytes_max=LIMIT)  # type: ignore[list-item]
    for refusal in (stream_refusal, columns_refusal):
        assert len(refusal.value.fields["reason"]) < 300


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
def test_a_body_that_is_not_an_arrow_stream_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptMessage) as refusal:
        accepted(body)
    assert refusal.value.fields.keys() == {"reason"}


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
    monkeypatch.setattr(batch, "_decode", lambda message: pytest.fail("it was decompressed"))
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


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (pairs_bomb(1003, 10_000), "1003 key-value pairs"),
        (pairs_bomb(10_003, 100_000), "more than 65536 bytes"),
        (
            written(columns())[: -len(STREAM_END)] + pairs_bomb(1003, 10_000)[len(STREAM_START) :],
            "1003 key-value pairs",
        ),
        (fields_bomb(307), "more than 100 fields"),
        (SCHEMA.with_metadata({"v": "v" * METADATA_BYTES_MAX}).serialize().to_pybytes(), "more than 65536 bytes"),
    ],
    ids=["ten megabytes of pairs", "a gigabyte of pairs", "behind a batch", "94,249 fields", "long metadata"],
)
def test_metadata_that_name_one_thing_again_and_again_are_refused_before_they_are_unpacked(
    body: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured before: 20 s and 4.8 GB for a body of 200 KB with one pair 25,000 times."""
    monkeypatch.setattr(pa.ipc, "read_schema", lambda message: pytest.fail("its fields were made"))
    with pytest.raises(InvalidRecord) as refusal:  # sent again as it is, it would be refused again
        accepted(body)
    assert not refusal.value.retriable
    assert why in refusal.value.fields["reason"]


@pytest.mark.parametrize("count", [1, 23])
def test_a_few_pairs_of_metadata_are_kept(count: int) -> None:
    stored = accepted(pairs_bomb(count, 1000)).message
    pairs = pa.ipc.open_stream(STREAM_START + stored).read_next_batch_with_custom_metadata().custom_metadata
    assert len(pairs) == count
    schema = SCHEMA.with_metadata({str(number): "v" * 1000 for number in range(count)})
    assert accepted(written(columns(schema=schema), schema=schema)).count == len(ROWS[0])


def many_headers(count: int, *, last_is_null: bool) -> bytes:
    """A stream of so many headers without a byte in them: 13 KB unpack to 16 MiB of these."""
    offsets, kind = pa.py_buffer(bytes(4 * (count + 1))), SCHEMA.field("headers").type
    present = bytearray(b"\xff" * (count // 8 + 1))
    present[(count - 1) // 8] &= 0xFF if not last_is_null else ~(1 << (count - 1) % 8)
    keys = pa.StringArray.from_buffers(count, offsets, pa.py_buffer(b""))
    items = pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(bytes(present)), offsets, pa.py_buffer(b"")])
    starts = [*range(0, count, HEADERS_MAX), count]
    rows = len(starts) - 1
    parts = pa.StructArray.from_arrays([keys, items], fields=list(kind.value_type))
    headers = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), parts).cast(kind)
    nulls = [pa.nulls(rows, field.type) for field in list(SCHEMA)[:3]]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch([*nulls, headers], schema=SCHEMA))
    return bytes(sink.getvalue())


def test_a_null_header_behind_a_million_others_costs_no_more_than_the_others() -> None:
    """Measured before: 0.7 s of the event loop for a body of 13 KB, to any node, even for a topic that is none."""

    def spent_s(*, last_is_null: bool) -> float:
        body, began_s = many_headers(1_000_000, last_is_null=last_is_null), time.thread_time()
        if last_is_null:
            with pytest.raises(InvalidRecord) as refused:
                batch_from_stream(body, now_ms=1, batch_bytes_max=1 << 24)
            assert refused.value.fields["index"] == 999
        else:
            batch_from_stream(body, now_ms=1, batch_bytes_max=1 << 24)
        return time.thread_time() - began_s

    spent_s(last_is_null=False)
    least_s = min(spent_s(last_is_null=True) for _ in range(3))  # the garbage collector may come in one of them
    assert least_s < 5 * spent_s(last_is_null=False)


def test_the_number_of_headers_of_a_record_is_bounded_in_a_stream_and_in_columns() -> None:
    def headers(count: int) -> list[dict[str, Any]]:
        return [{"key": "k", "value": b"v"}] * count

    most, too_many = headers(HEADERS_MAX), headers(HEADERS_MAX + 1)
    assert accepted(written(columns([*ROWS[:3], [None, most, most]]))).count == 3
    with pytest.raises(InvalidRecord) as refusal:
        accepted(written(columns([*ROWS[:3], [None, most, too_many]])))
    assert refusal.value.fields["index"] == 2
    with pytest.raises(InvalidRecord) as refusal:
        batch_from_columns([None], [b""], None, [[("k", b"v")] * len(too_many)], now_ms=NOW, batch_bytes_max=LIMIT)
    assert refusal.value.fields["index"] == 0


def test_a_batch_that_counts_its_headers_as_null_is_refused() -> None:
    """The count of nulls decides whether headers are looked at, so it has to be true."""
    body = bytearray(STREAM_START + message_from_columns([None], [None], [1], [[("h", b"v")]]) + STREAM_END)
    start = len(STREAM_START) + 8  # continuation mark, and bytes of metadata
    node = start + batch_places(memoryview(body)[start:])[2] + 3 * 16  # of the fourth column: rows, nulls
    assert struct.unpack_from("<qq", body, node) == (1, 0)
    struct.pack_into("<q", body, node + 8, 1)
    with pytest.raises(CorruptMessage):
        batch_from_stream(bytes(body), now_ms=1, batch_bytes_max=1 << 20)


@pytest.mark.parametrize("headers", [None, [[("h", b"v")], None]])
@pytest.mark.parametrize("stamp", [None, "now"])
def test_a_time_of_a_wrong_type_is_refused_with_headers_and_without(
    stamp: Any, headers: list[list[tuple[str, bytes]] | None] | None
) -> None:
    with pytest.raises(InvalidRecord):
        message_from_columns([None, None], [b"v", b"w"], [1, stamp], headers)

"""The flatbuffer reader, on metadata made by hand where no writer would make it."""

import struct

import pyarrow as pa
import pytest

from stockade.partition.records.batch import SCHEMA
from stockade.partition.records.ipc import batch_header, is_little_endian, metadata_version


def schema_metadata(endianness: int) -> memoryview:
    """Message{version: V5, header: Schema{endianness}} as a flatbuffer; the schema has no columns."""
    message_layout = struct.pack("<HHHHH", 10, 12, 4, 6, 8)  # sizes; where version, header type and header are
    message = struct.pack(
        "<iHBxI", 12, 4, 1, 12
    )  # the layout is 12 bytes before; V5; a schema, 12 bytes after this field
    schema_layout = struct.pack("<HHH", 6, 6, 4)
    schema = struct.pack("<iH", 6, endianness)
    head = struct.pack("<I", 16) + message_layout + b"\0\0"
    return memoryview(head + message + b"\0\0" + schema_layout + schema)


@pytest.mark.parametrize(("endianness", "is_little"), [(0, True), (1, False)])
def test_the_order_of_bytes_is_read_from_the_schema(endianness: int, is_little: bool) -> None:
    metadata = schema_metadata(endianness)
    assert metadata_version(metadata) == 4
    assert is_little_endian(metadata) is is_little


def test_absent_fields_have_their_defaults() -> None:
    message = pa.ipc.read_message(SCHEMA.serialize())
    assert is_little_endian(memoryview(message.metadata))


def test_rows_and_bytes_are_those_of_the_batch() -> None:
    batch = pa.record_batch([[b"k"] * 3, [b"v" * 100] * 3, [1, 2, 3], [None] * 3], schema=SCHEMA)
    message = pa.ipc.read_message(batch.serialize())
    header = batch_header(memoryview(message.metadata), memoryview(message.body))
    columns = 4 * 4 + 3 + 4 * 4 + 300 + 3 * 8  # offsets and bytes of keys and values; timestamps
    headers = 1 + 4 * 4 + 4 + 4  # no header: a bitmap, offsets of the lists, offsets of no keys and no values
    assert (header.rows, header.uncompressed) == (3, columns + headers)


def test_metadata_without_a_header_is_refused() -> None:
    empty = struct.pack("<I", 8) + struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    with pytest.raises(ValueError, match="no header"):
        is_little_endian(memoryview(empty))

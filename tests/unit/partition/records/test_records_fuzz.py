"""Damaged streams: refused, or stored as something that every reader can read. Never a crash, never another error."""

import struct

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stockade.partition.errors import CorruptMessage, InvalidRecord, MessageTooLarge
from stockade.partition.records.batch import RECORDS_MAX, STREAM_END, STREAM_START, batch_from_stream, stream

from ..arrow import ROWS, columns, written

LIMIT = 1 << 16


def body(timestamps: list[int | None], compression: str | None) -> bytes:
    return written(columns([ROWS[0], ROWS[1], timestamps, ROWS[3]]), compression=compression)


TIMES: list[list[int | None]] = [[None, 5, 7], [1, 2, 3]]
BODIES = [body(times, codec) for times in TIMES for codec in (None, "lz4", "zstd")]
TELLING = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1, 10**6]
POSITION = st.integers(0, max(map(len, BODIES)))
DAMAGE = st.one_of(
    st.tuples(POSITION, st.just(1), st.binary(min_size=1, max_size=1)),  # another byte
    st.tuples(POSITION, st.just(8), st.sampled_from(TELLING).map(lambda n: struct.pack("<Q", n))),
    st.tuples(
        POSITION, st.just(4), st.sampled_from([n for n in TELLING if n < 2**32]).map(lambda n: struct.pack("<I", n))
    ),
    st.tuples(POSITION, st.integers(1, 16), st.just(b"")),  # bytes lost
    st.tuples(POSITION, st.just(0), st.binary(min_size=1, max_size=16)),  # bytes added
)


def damaged(whole: bytes, wounds: list[tuple[int, int, bytes]]) -> bytes:
    for position, length, bytes_instead in wounds:
        whole = whole[:position] + bytes_instead + whole[position + length :]
    return whole


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(BODIES), st.lists(DAMAGE, min_size=1, max_size=4))
@example(STREAM_START + STREAM_END, [])
def test_a_damaged_stream_is_refused_or_readable(whole: bytes, wounds: list[tuple[int, int, bytes]]) -> None:
    try:
        batch = batch_from_stream(damaged(whole, wounds), now_ms=7, batch_bytes_max=LIMIT)
    except (CorruptMessage, InvalidRecord, MessageTooLarge):
        return
    table = pa.ipc.open_stream(b"".join(stream([batch.message, batch.message]))).read_all()
    table.validate(full=True)
    timestamps = table.column("timestamp").cast(pa.int64()).to_pylist()
    assert len(timestamps) == 2 * batch.count
    assert 1 <= batch.count <= RECORDS_MAX
    assert len(batch.message) <= LIMIT
    assert min(timestamps) >= 0
    assert max(timestamps) == batch.max_timestamp_ms
    for column in ("key", "value", "headers"):
        table.column(column).to_pylist()  # touches every byte


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes_are_refused_politely(noise: bytes) -> None:
    for given_body in (noise, STREAM_START + noise):
        try:
            batch_from_stream(given_body, now_ms=7, batch_bytes_max=LIMIT)
        except (CorruptMessage, InvalidRecord, MessageTooLarge):
            continue
        raise AssertionError("noise became a batch")

"""Small batches are encoded by hand; whoever reads them must not notice."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.partition.errors import InvalidRecord
from stockade.partition.records.batch import PLAIN_RECORDS_MAX, SCHEMA, FastEncoder, batch_from_columns, decode_batch

ITEMS = st.none() | st.binary(max_size=20)
ROWS = st.lists(st.tuples(ITEMS, ITEMS, st.integers(0, (1 << 63) - 1)), min_size=1, max_size=PLAIN_RECORDS_MAX)
encoder = FastEncoder(SCHEMA)


@given(ROWS)
def test_a_plain_batch_is_byte_for_byte_what_arrow_writes(rows: list[tuple[bytes | None, bytes | None, int]]) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    columns = [keys, values, times, [None] * len(rows)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    by_arrow = pa.record_batch(arrays, schema=SCHEMA)
    by_hand = encoder.encode(keys, values, times)
    assert by_hand == by_arrow.serialize().to_pybytes()
    decoded = decode_batch(by_hand)
    decoded.validate(full=True)
    assert decoded.equals(by_arrow)


@pytest.mark.parametrize("count", [1, PLAIN_RECORDS_MAX, PLAIN_RECORDS_MAX + 1])
def test_batches_of_any_size_are_made_alike(count: int) -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(count)]
    batch = batch_from_columns([None] * count, values, [None] * count, None, now_ms=7, batch_bytes_max=1 << 20)
    rows = decode_batch(batch.message)
    assert rows.column("value").to_pylist() == values
    assert set(rows.column("timestamp").cast("int64").to_pylist()) == {7}
    assert (batch.count, batch.max_timestamp_ms) == (count, 7)


@pytest.mark.parametrize("bad", [1, [b"x"]])
@pytest.mark.parametrize("count", [1, PLAIN_RECORDS_MAX + 1])
def test_what_is_no_bytes_is_refused(bad: object, count: int) -> None:
    values: list[bytes | None] = [bad] * count  # type: ignore[list-item]
    with pytest.raises(InvalidRecord):
        batch_from_columns([None] * count, values, None, None, now_ms=7, batch_bytes_max=1 << 20)

"""Batches without headers are encoded by hand; a reader of Arrow must not notice."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.partition.errors import InvalidRecord
from stockade.partition.records.batch import SCHEMA, FastEncoder, batch_from_columns, decode_batch

Rows = list[tuple[bytes | None, bytes | None, int]]
NULLS, BYTES = st.none(), st.binary(max_size=20)
TIMES = st.integers(0, (1 << 63) - 1)
COUNT_MAX = 70
"""More than the bits of eight bytes of a bitmap."""


def rows(keys: st.SearchStrategy[bytes | None], values: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[Rows]:
    """Records whose columns have these items."""
    return st.lists(st.tuples(keys, values, TIMES), min_size=1, max_size=COUNT_MAX)


MIXED = NULLS | BYTES
encoder = FastEncoder(SCHEMA)


@given(rows(NULLS, BYTES) | rows(BYTES, BYTES) | rows(MIXED, MIXED) | rows(BYTES, NULLS))
def test_the_fast_encoder_writes_the_bytes_that_arrow_writes(rows: Rows) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    columns = [keys, values, times, [None] * len(rows)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    by_arrow = pa.record_batch(arrays, schema=SCHEMA)
    by_hand = encoder.encode(keys, values, times)
    assert by_hand == by_arrow.serialize().to_pybytes()
    decoded = decode_batch(by_hand)
    decoded.validate(full=True)
    assert decoded.equals(by_arrow)


@pytest.mark.parametrize("count", [1, 2, 9, 5000])
def test_batches_of_any_size_are_made_alike(count: int) -> None:
    values: list[bytes | None] = [b"%d" % number for number in range(count)]
    batch = batch_from_columns([None] * count, values, [None] * count, None, now_ms=7, batch_bytes_max=1 << 20)
    rows = decode_batch(batch.message)
    assert rows.column("value").to_pylist() == values
    assert set(rows.column("timestamp").cast("int64").to_pylist()) == {7}
    assert (batch.count, batch.max_timestamp_ms) == (count, 7)


@pytest.mark.parametrize("bad", [1, [b"x"]])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_value_that_is_not_bytes_is_refused(bad: object, count: int) -> None:
    values: list[bytes | None] = [bad] * count  # type: ignore[list-item]
    with pytest.raises(InvalidRecord):
        batch_from_columns([None] * count, values, None, None, now_ms=7, batch_bytes_max=1 << 20)

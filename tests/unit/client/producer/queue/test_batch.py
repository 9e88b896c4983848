import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.client.producer.queue.batch import BATCH_OVERHEAD_BYTES, Batch, Receipt, Record
from stockade.partition.errors import InvalidRecord, MessageTooLarge
from stockade.partition.records.batch import HEADERS_MAX, RECORDS_MAX, decode_batch

BYTES = st.none() | st.binary(max_size=50)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(st.builds(Record, BYTES, BYTES, st.integers(0, 10**12), HEADERS), min_size=1, max_size=30)


def batch_of(records: list[Record]) -> Batch:
    batch = Batch(0.0)
    for record in records:
        headers = None if record.headers is None else tuple(record.headers)
        assert record.checked() == record._replace(headers=headers)
        assert record.plain_size() in (None, record.size)
        batch.add(record, record.size)
    batch.sealed = True
    return batch


def columns_of(records: list[Record]) -> Batch:
    columns = [list(column) for column in zip(*records, strict=True)]
    return Batch.of(columns[1], columns[0], columns[3], columns[2], now_ms=0)


@given(RECORDS)
def test_the_size_estimate_of_a_batch_is_never_below_its_message(records: list[Record]) -> None:
    batch = batch_of(records)
    batch.encode(1 << 20)
    assert batch.message is not None
    assert len(batch.message) <= batch.size + BATCH_OVERHEAD_BYTES


@given(RECORDS)
def test_records_one_by_one_and_as_columns_make_the_same_batch(records: list[Record]) -> None:
    one_by_one = batch_of(records)
    at_once = columns_of(records)
    one_by_one.encode(1 << 20)
    at_once.encode(1 << 20)
    assert one_by_one.count == at_once.count == len(records)
    assert one_by_one.size == at_once.size
    assert one_by_one.message is not None
    assert at_once.message is not None
    assert decode_batch(one_by_one.message).equals(decode_batch(at_once.message))


@given(RECORDS, RECORDS)
def test_records_with_columns_behind_them_make_the_same_batch(some: list[Record], more: list[Record]) -> None:
    more = [record._replace(headers=None) for record in more]
    whole, joined = batch_of(some + more), batch_of(some)
    joined.sealed = False
    columns = columns_of(more)
    columns.headers = None
    assert joined.extend(columns) == len(some)
    whole.encode(1 << 20)
    joined.encode(1 << 20)
    assert (joined.count, joined.size) == (whole.count, whole.size)
    assert joined.message == whole.message


@given(RECORDS)
def test_a_batch_that_passes_the_quick_check_can_be_encoded(records: list[Record]) -> None:
    batch = columns_of(records)
    batch.check(2000)
    if batch.message is None:
        batch.encode(2000)


def test_columns_must_be_there_and_equally_long() -> None:
    for values, keys in (([], None), ([b"a"] * (RECORDS_MAX + 1), None), ([b"a"], [b"k", b"k"])):
        with pytest.raises(InvalidRecord):
            Batch.of(values, keys, None, None, now_ms=0)


@pytest.mark.parametrize(
    "record",
    [
        Record(None, "text", 0),  # type: ignore[arg-type]
        Record(None, b"v", 2**63),
        Record(None, b"v", "now"),  # type: ignore[arg-type]
        Record("k", b"v", 0),  # type: ignore[arg-type]
        Record(None, b"v", -1),
        Record(None, b"v", 0, [("h", "v")]),  # type: ignore[list-item]
        Record(None, b"v", 0, [(b"h", b"v")]),  # type: ignore[list-item]
        Record(None, b"v", 0, [("\ud800", b"v")]),
        Record(None, b"v", 0, {"h": b"v"}),  # type: ignore[arg-type]
        Record(None, b"v", 0, False),  # type: ignore[arg-type]
        Record(None, b"v", 0, [("h", b"v")] * (HEADERS_MAX + 1)),
    ],
)
def test_a_record_that_would_spoil_its_batch_is_refused_before(record: Record) -> None:
    with pytest.raises(InvalidRecord):
        record.checked()
    assert record.plain_size() is None


@pytest.mark.parametrize(
    "record",
    [
        Record(None, b"v", 0, []),
        Record(None, b"v", 0, [("h", b"v")] * HEADERS_MAX),
        Record(None, b"v", 0, [["h", b"v"]]),  # type: ignore[list-item]
        Record(None, b"v", 0, iter([("h", b"v")])),  # type: ignore[arg-type]
        Record(None, b"v", True, [("h", b"v")]),
    ],
)
def test_a_record_that_is_taken_spoils_no_batch(record: Record) -> None:
    """One of a form that Arrow refuses was taken, and failed its whole batch."""
    batch, checked = Batch(0.0), record.checked()
    batch.add(Record(b"k", b"v", 0), 26)
    batch.add(checked, checked.size)
    batch.encode(1 << 20)
    assert batch.records()[1].headers == list(checked.headers or ())


def test_headers_that_are_changed_later_stay_as_they_were() -> None:
    headers = [("h", b"v")]
    record = Record(None, b"v", 0, headers).checked()
    headers[0] = ("h", b"other")
    headers.append(("g", b"v"))
    assert record.headers == (("h", b"v"),)


@given(RECORDS)
def test_the_message_size_of_a_record_equals_its_encoded_message(records: list[Record]) -> None:
    for record in records:
        batch = batch_of([record])
        batch.encode(1 << 20)
        assert batch.message is not None
        assert record.checked().message_size() == len(batch.message)


@pytest.mark.parametrize("changing", [bytearray(b"v"), memoryview(bytearray(b"v"))])
def test_bytes_that_can_change_are_copied_when_they_are_taken(changing: bytearray | memoryview) -> None:
    record = Record(changing, changing, 0).checked()  # type: ignore[arg-type]
    columns = Batch.of([changing], [changing], None, None, now_ms=0)
    changing[0] = 0
    assert record == Record(b"v", b"v", 0)
    assert (columns.values, columns.keys) == ([b"v"], [b"v"])


def test_a_batch_that_is_too_large_is_not_made() -> None:
    with pytest.raises(MessageTooLarge):
        batch_of([Record(None, b"x" * 1000, 0)]).encode(1000)


def test_an_unknown_offset_is_none_and_not_0() -> None:
    assert Receipt("t", 0, None, 3, True, None).last_offset is None
    assert Receipt("t", 0, 4, 3, False, 0).last_offset == 6

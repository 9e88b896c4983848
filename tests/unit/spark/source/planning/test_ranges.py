import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.spark.source.planning.ranges import DataLost, Range, Seen, available, split

SEEN = {"a": Seen(7, {0: (10, 20), 1: (0, 5)})}


def test_a_range_that_the_log_has_is_read_whole() -> None:
    wanted = [Range("a", 0, 10, 20, 7), Range("a", 1, 2, 2, 7)]
    assert available(wanted, SEEN, fail=True) == [Range("a", 0, 10, 20, 7)]


@pytest.mark.parametrize(
    ("wanted", "left", "reason"),
    [
        (Range("a", 0, 5, 15, 7), [Range("a", 0, 10, 15, 7)], "a/0 has offsets 10 to 20, and 5 to 15"),
        (Range("a", 0, 15, 25, 7), [Range("a", 0, 15, 20, 7)], "a/0 has offsets 10 to 20, and 15 to 25"),
        (Range("a", 0, 0, 9, 7), [], "a/0 has offsets 10 to 20"),
        (Range("a", 0, 15, 12, 7), [], "and 15 to 12 were asked for"),
        (Range("a", 2, 0, 1, 7), [], "a/2 is gone"),
        (Range("b", 0, 0, 1, 1), [], "b/0 is gone"),
        (Range("a", 1, 0, 5, 6), [], "a was deleted and created again"),
    ],
)
def test_records_that_are_missing_fail_the_read_or_are_left_out(wanted: Range, left: list[Range], reason: str) -> None:
    assert available([wanted], SEEN, fail=False) == left
    with pytest.raises(DataLost, match=reason):
        available([wanted], SEEN, fail=True)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), max_size=6), st.integers(1, 40))
def test_split_ranges_are_the_same_records_in_the_same_order(sizes: list[tuple[int, int]], count_min: int) -> None:
    whole = [Range("t", number, start, start + size) for number, (start, size) in enumerate(sizes)]
    pieces = split(whole, count_min)
    records = [(each.partition, offset) for each in pieces for offset in range(each.start, each.end)]
    assert records == [(each.partition, offset) for each in whole for offset in range(each.start, each.end)]
    assert all(each.start < each.end for each in pieces)
    assert len(pieces) >= min(count_min, len(records))


def test_a_long_partition_is_cut_more_often_than_a_short_one() -> None:
    pieces = split([Range("t", 0, 0, 900), Range("t", 1, 0, 100)], 10)
    assert [sum(piece.partition == p for piece in pieces) for p in (0, 1)] == [9, 1]

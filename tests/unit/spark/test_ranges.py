from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.spark.options import EARLIEST, ReadOptions, parse_read_options
from stockade.spark.ranges import OffsetsLost, Range, plan, split

OPTIONS = parse_read_options({"url": "http://127.0.0.1:7101", "subscribe": "a"})


def starting(*offsets: int, fail: bool = True) -> ReadOptions:
    return replace(OPTIONS, starting={"a": dict(enumerate(offsets))}, fail_on_data_loss=fail)


def ending(*offsets: int, fail: bool = True) -> ReadOptions:
    return replace(OPTIONS, ending={"a": dict(enumerate(offsets))}, fail_on_data_loss=fail)


def test_by_default_each_partition_that_has_records_is_one_range() -> None:
    assert plan(OPTIONS, {"a": {1: (5, 9), 0: (0, 7), 2: (4, 4)}}) == [Range("a", 0, 0, 7), Range("a", 1, 5, 9)]


def test_several_topics_are_planned_one_after_the_other() -> None:
    assert plan(OPTIONS, {"b": {0: (0, 1)}, "a": {0: (0, 2)}}) == [Range("b", 0, 0, 1), Range("a", 0, 0, 2)]


def test_offsets_of_the_options_bound_the_ranges() -> None:
    ends = {"a": {0: (2, 9), 1: (3, 9)}}
    assert plan(starting(4, EARLIEST), ends) == [Range("a", 0, 4, 9), Range("a", 1, 3, 9)]
    assert plan(ending(4, 3), ends) == [Range("a", 0, 2, 4)]


@pytest.mark.parametrize("options", [starting(1), starting(10), ending(10), ending(1)])
def test_offsets_that_the_log_does_not_have_are_refused(options: ReadOptions) -> None:
    with pytest.raises(OffsetsLost, match="a/0 has offsets 2 to 9"):
        plan(options, {"a": {0: (2, 9)}})


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        (starting(1, fail=False), [Range("a", 0, 2, 9)]),
        (ending(10, fail=False), [Range("a", 0, 2, 9)]),
        (starting(10, fail=False), []),
        (ending(1, fail=False), []),
    ],
)
def test_offsets_that_the_log_does_not_have_can_be_left_out(options: ReadOptions, ranges: list[Range]) -> None:
    assert plan(options, {"a": {0: (2, 9)}}) == ranges


@pytest.mark.parametrize("options", [starting(1), starting(1, 1, 1), ending(1), ending(1, 1, 1)])
def test_offsets_must_name_the_partitions_that_there_are(options: ReadOptions) -> None:
    with pytest.raises(ValueError, match="each of the 2 partitions of a"):
        plan(options, {"a": {0: (0, 9), 1: (0, 9)}})


def test_minimum_tasks_are_shared_out_by_size() -> None:
    pieces = split([Range("a", 0, 0, 90), Range("a", 1, 10, 20)], 10)
    assert [piece.end - piece.start for piece in pieces] == [10] * 10


SIZES = st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(1, 2000)), min_size=1, max_size=5)


@given(SIZES, st.integers(1, 300))
def test_pieces_are_the_ranges_again_and_as_many_as_asked_for(sizes: list[tuple[int, int]], count_min: int) -> None:
    ranges = [Range("a", number, start, start + size) for number, (start, size) in enumerate(sizes)]
    pieces = split(ranges, count_min)
    assert len(pieces) >= min(count_min, sum(size for _, size in sizes))
    for whole in ranges:
        parts = [piece for piece in pieces if piece.partition == whole.partition]
        assert [parts[0].start, *(part.end for part in parts)] == [*(part.start for part in parts), whole.end]
        assert all(part.start < part.end for part in parts)

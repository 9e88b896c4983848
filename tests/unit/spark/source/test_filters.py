from datetime import UTC, datetime
from typing import Any

import pytest

from stockade.spark.source.filters import AcceptedFilters
from stockade.spark.source.planning.ranges import Range

RANGES = [Range("a", 0, 10, 20), Range("a", 1, 0, 30), Range("b", 0, 0, 5)]
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "column", "value", "left"),
    [
        ("EqualTo", "partition", 1, [Range("a", 1, 0, 30)]),
        ("In", "partition", (1, 5), [Range("a", 1, 0, 30)]),
        ("EqualTo", "topic", "b", [Range("b", 0, 0, 5)]),
        ("EqualTo", "offset", 12, [Range("a", 0, 12, 13), Range("a", 1, 12, 13)]),
        ("GreaterThan", "offset", 18, [Range("a", 0, 19, 20), Range("a", 1, 19, 30)]),
        ("GreaterThanOrEqual", "offset", 19, [Range("a", 0, 19, 20), Range("a", 1, 19, 30)]),
        ("LessThan", "offset", 1, [Range("a", 1, 0, 1), Range("b", 0, 0, 1)]),
        ("LessThanOrEqual", "offset", 0, [Range("a", 1, 0, 1), Range("b", 0, 0, 1)]),
    ],
)
def test_a_filter_that_is_taken_over_leaves_exactly_what_passes(
    kind: str, column: str, value: Any, left: list[Range]
) -> None:
    narrowed = AcceptedFilters()
    assert narrowed.take(kind, (column,), value)
    assert narrowed.cut(RANGES) == left


def test_several_filters_cut_the_ranges_together() -> None:
    narrowed = AcceptedFilters()
    for kind, column, value in (
        ("In", "partition", (0, 1)),
        ("EqualTo", "partition", 0),
        ("GreaterThan", "offset", 1),
        ("LessThan", "offset", 15),
        ("LessThanOrEqual", "offset", 12),
    ):
        assert narrowed.take(kind, (column,), value)
    assert narrowed.cut(RANGES) == [Range("a", 0, 10, 13), Range("b", 0, 2, 5)]


@pytest.mark.parametrize("kind", ["EqualTo", "GreaterThan", "GreaterThanOrEqual"])
def test_a_time_moves_the_start_and_is_still_looked_at_row_by_row(kind: str) -> None:
    narrowed = AcceptedFilters()
    assert not narrowed.take(kind, ("timestamp",), MOMENT)
    assert narrowed.since_ms == 1767225599999
    assert not narrowed.take(kind, ("timestamp",), datetime(2025, 1, 1))
    assert narrowed.since_ms == 1767225599999


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("LessThan", ("timestamp",), MOMENT),
        ("In", ("offset",), (1, 2)),
        ("EqualTo", ("key",), b"k"),
        ("EqualTo", ("offset", "x"), 1),
        ("EqualTo", ("offset",), None),
        ("IsNotNull", ("offset",), None),
        ("Not", (), None),
    ],
)
def test_a_filter_of_another_kind_is_left_to_spark(kind: str, column: tuple[str, ...], value: Any) -> None:
    narrowed = AcceptedFilters()
    assert not narrowed.take(kind, column, value)
    assert narrowed.cut(RANGES) == RANGES

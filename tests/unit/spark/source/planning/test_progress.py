import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.spark.source.planning.progress import Progress, advance, beginning, ends, ranges, shares
from stockade.spark.source.planning.ranges import DataLost, Range, Seen, Topics, available


def seen(topic_id: int = 1, **ends_of: list[int]) -> Topics:
    return {topic: Seen(topic_id, {p: (0, end) for p, end in enumerate(ends)}) for topic, ends in ends_of.items()}


def at(topic_id: int = 1, **offsets: list[int]) -> Progress:
    return {t: {"id": topic_id, "next": {str(p): o for p, o in enumerate(each)}} for t, each in offsets.items()}


def test_a_step_goes_to_the_ends_of_the_logs_and_no_further() -> None:
    step = advance(at(a=[1, 2]), seen(a=[5, 2]), None, fail=True)
    assert step == at(a=[5, 2])
    assert ranges(at(a=[1, 2]), step) == [Range("a", 0, 1, 5, 1)]


def test_a_step_without_new_records_returns_the_progress_it_was_given() -> None:
    start = {"a": {"id": 1, "next": {"0": 5}, "from": {"0": 0}}}
    assert advance(start, seen(a=[5]), None, fail=True) is start
    assert ranges(start, start) == []


def test_a_new_partition_is_read_from_its_first_record_also_when_it_is_repeated() -> None:
    grown: Topics = {"a": Seen(1, {0: (0, 5), 1: (3, 9)})}
    step = advance(at(a=[5]), grown, None, fail=True)
    assert step == {"a": {"id": 1, "next": {"0": 5, "1": 9}, "from": {"1": 3}}}
    assert ranges(at(a=[5]), json.loads(json.dumps(step))) == [Range("a", 1, 3, 9, 1)]
    later = advance(step, {"a": Seen(1, {0: (0, 6), 1: (3, 9)})}, None, fail=True)
    assert ranges(step, later) == [Range("a", 0, 5, 6, 1)]


def test_a_new_topic_is_read_from_its_first_record() -> None:
    step = advance(at(a=[5]), seen(a=[5], b=[2]), None, fail=True)
    assert ranges(at(a=[5]), step) == [Range("b", 0, 0, 2, 1)]


def test_a_new_partition_without_records_is_a_step_too_and_is_not_read_twice() -> None:
    step = advance(at(a=[5]), seen(a=[5, 0]), None, fail=True)
    assert step["a"]["next"] == {"0": 5, "1": 0}
    assert ranges(at(a=[5]), step) == []
    assert advance(step, seen(a=[5, 0]), None, fail=True) is step


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (seen(), "topic a is gone, or the options do not select it any more"),
        (seen(2, a=[9, 9]), r"created again \(topic id 1, now 2\)"),
        (seen(a=[9]), "a/1 is gone, or the options do not select it any more"),
        (seen(a=[9, 3]), "a/1 was read to 4, and ends at 3"),
    ],
)
def test_a_topic_or_a_partition_that_is_gone_fails_the_stream(now: Topics, reason: str) -> None:
    with pytest.raises(DataLost, match=reason):
        advance(at(a=[4, 4]), now, None, fail=True)


def test_without_fail_a_topic_made_anew_is_read_from_its_first_record() -> None:
    step = advance(at(a=[4]), seen(2, a=[3]), None, fail=False)
    assert ranges(at(a=[4]), step) == [Range("a", 0, 0, 3, 2)]


def test_a_topic_or_a_partition_that_is_out_of_sight_for_a_while_is_read_on_where_it_was() -> None:
    start = at(a=[4, 6])
    assert advance(start, seen(), None, fail=False) is start
    only_first = advance(start, seen(a=[5], b=[1]), None, fail=False)
    assert ranges(start, only_first) == [Range("a", 0, 4, 5, 1), Range("b", 0, 0, 1, 1)]
    neither = advance(only_first, seen(b=[2]), None, fail=False)
    assert neither == at(a=[5, 6], b=[2])
    assert ranges(only_first, neither) == [Range("b", 0, 1, 2, 1)]
    again = advance(neither, seen(a=[7, 9], b=[2]), None, fail=False)
    assert ranges(neither, again) == [Range("a", 0, 5, 7, 1), Range("a", 1, 6, 9, 1)]


def test_no_step_is_spent_on_records_that_are_gone() -> None:
    dropped: Topics = {"a": Seen(1, {0: (1_000_000, 1_000_100)})}
    start = at(a=[10])
    step = advance(start, dropped, 80, fail=False)
    assert available(ranges(start, json.loads(json.dumps(step))), dropped, fail=False) == [
        Range("a", 0, 1_000_000, 1_000_080, 1)
    ]
    following = advance(step, dropped, 80, fail=False)
    assert ranges(step, following) == [Range("a", 0, 1_000_080, 1_000_100, 1)]
    assert advance(following, dropped, 80, fail=False) is following
    with pytest.raises(DataLost, match="has offsets 1000000 to 1000100, and 10 to 90 were asked for"):
        available(ranges(start, advance(start, dropped, 80, fail=True)), dropped, fail=True)


def test_the_first_step_is_repeated_with_the_same_records_though_the_start_is_computed_anew() -> None:
    first = beginning({"a": {0: 3, 1: 0}}, seen(a=[3, 2]))
    step = json.loads(json.dumps(advance(first, seen(a=[5, 2]), None, fail=True)))
    assert ranges(first, step) == [Range("a", 0, 3, 5, 1), Range("a", 1, 0, 2, 1)]
    for later in ({"a": {0: 4, 1: 2}}, {"a": {0: 9, 1: 9}}):
        assert ranges(beginning(later, seen(a=[9, 9])), step) == ranges(first, step)


def test_the_first_step_over_a_topic_made_anew_since_is_lost_data() -> None:
    first = beginning({"a": {0: 3}}, seen(a=[3]))
    step = advance(first, seen(a=[5]), None, fail=True)
    anew = seen(2, a=[9])
    found = ranges(beginning({"a": {0: 9}}, anew), step)
    assert found == [Range("a", 0, 3, 5, 1)]
    with pytest.raises(DataLost, match="was deleted and created again"):
        available(found, anew, fail=True)
    assert available(found, anew, fail=False) == []


def test_a_topic_out_of_sight_in_the_first_step_has_no_records_in_it_when_it_is_repeated() -> None:
    first = beginning({"a": {0: 3}, "b": {0: 0}}, seen(a=[3], b=[0]))
    step = advance(first, seen(b=[2]), None, fail=False)
    again = beginning({"a": {0: 2}, "b": {0: 2}}, seen(a=[7], b=[2]))
    assert ranges(again, json.loads(json.dumps(step))) == ranges(first, step) == [Range("b", 0, 0, 2, 1)]


def test_a_first_micro_batch_without_records_has_none_when_it_is_repeated() -> None:
    first = beginning({"a": {0: 3}}, seen(a=[3]))
    assert advance(first, seen(a=[3]), None, fail=True) is first
    assert ranges(first, first) == []
    for again in (beginning({"a": {0: 2}}, seen(a=[9])), beginning({"a": {0: 2}}, seen(2, a=[9]))):
        assert ranges(again, first) == []
    following = advance(first, seen(a=[4]), None, fail=True)
    assert ranges(first, following) == [Range("a", 0, 3, 4, 1)]
    assert ranges(following, advance(following, seen(a=[6]), None, fail=True)) == [Range("a", 0, 4, 6, 1)]


def test_a_step_that_adds_nothing_reads_nothing_although_the_one_before_it_met_a_new_partition() -> None:
    step = advance(at(a=[4]), seen(a=[4, 3]), None, fail=True)
    assert ranges(at(a=[4]), step) == [Range("a", 1, 0, 3, 1)]
    assert ranges(step, advance(step, seen(a=[4, 3]), None, fail=True)) == []


def test_the_first_progress_is_marked_initial_and_the_last_is_at_the_log_ends() -> None:
    assert beginning({"a": {0: 3, 1: 0}}, seen(a=[5, 6])) == {"a": {**at(a=[3, 0])["a"], "initial": True}}
    assert ends(seen(a=[5, 6])) == at(a=[5, 6])


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 1000)), st.integers(1, 2000))
def test_shares_are_all_that_is_allowed_and_leave_no_partition_out_while_they_can(
    sizes: dict[int, int], most: int
) -> None:
    given = shares(sizes, most)
    assert sum(given.values()) == min(most, sum(sizes.values()))
    assert all(0 <= given[place] <= sizes[place] for place in sizes)
    if most >= len(sizes):
        assert all(given[place] > 0 for place in sizes if sizes[place])


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(1, 100), st.data())
def test_steps_of_any_size_read_every_record_once(logs: list[int], rows_max: int, data: st.DataObject) -> None:
    offset, read = at(a=[0]), list[tuple[int, int]]()
    known = 1
    while True:
        known = data.draw(st.integers(known, len(logs)))
        now = seen(a=logs[:known])
        step = advance(offset, now, rows_max, fail=True)
        if step is offset and known == len(logs):
            break
        found = ranges(json.loads(json.dumps(offset)), json.loads(json.dumps(step)))
        assert sum(each.end - each.start for each in found) <= rows_max
        read += [(each.partition, o) for each in found for o in range(each.start, each.end)]
        offset = step
    assert sorted(read) == [(p, o) for p, end in enumerate(logs) for o in range(end)]

"""What a node tells a monitor, and what it says of its leaderships."""

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.cluster.controller.ownership.grants import Grants
from stockade.cluster.controller.ownership.slots import FenceInstalls
from stockade.cluster.measures import LAGGING_GROUPS_MAX, QUOTAS_MAX, RaftMeasures
from stockade.cluster.node import measuring
from stockade.cluster.node.leadership import Leaderships
from stockade.cluster.node.measuring import GROUPS_A_TURN, Measuring, PendingTimes, group_lags, quotas_used
from stockade.raft.histogram import Histogram
from stockade.raft.log.configuration import Configuration

from ..fakes import FakeGroup

BUSY, STUCK = 1, 2
"""Two partitions."""


def replica(log_end: int, **positions: int) -> Any:
    """A partition whose log ends there, and on which groups have read so far."""
    readers = SimpleNamespace(positions={name: SimpleNamespace(offset=offset) for name, offset in positions.items()})
    return SimpleNamespace(machine=SimpleNamespace(log_end=log_end, readers=readers))


def test_the_lag_of_a_group_is_the_sum_over_partitions() -> None:
    assert group_lags([replica(10, a=4, b=10), replica(5, a=0)]) == {"a": 11, "b": 0}


def test_the_groups_that_lag_most_are_told_and_no_more() -> None:
    names = {f"g{number:03}": number for number in range(LAGGING_GROUPS_MAX + 1)}
    told = group_lags([replica(LAGGING_GROUPS_MAX, **names)])
    assert len(told) == LAGGING_GROUPS_MAX
    assert f"g{LAGGING_GROUPS_MAX:03}" not in told
    assert told["g000"] == LAGGING_GROUPS_MAX


def filled(topic: str, quota_bytes: int, kept_bytes: int) -> Any:
    """A partition of a topic with a quota, of which it keeps so much."""
    return SimpleNamespace(topic=topic, config=SimpleNamespace(quota_bytes=quota_bytes), kept_bytes=kept_bytes)


def test_the_fullest_partition_of_a_topic_tells_how_much_of_its_quota_is_used() -> None:
    led = [filled("a", 100, 20), filled("a", 100, 85), filled("free", -1, 1 << 40), filled("closed", 0, 0)]
    assert quotas_used(led) == {"a": 0.85}
    many = [filled(f"t{number:03}", 1000, number) for number in range(QUOTAS_MAX + 1)]
    told = quotas_used(many)
    assert len(told) == QUOTAS_MAX
    assert "t000" not in told


def test_positions_beyond_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "POSITIONS_MAX", 2)
    assert group_lags([replica(9, a=1, b=2), replica(9, c=3)]) == {"a": 8, "b": 7}


def a_node(groups: int = 0, replicas: Sequence[Any] = ()) -> Measuring:
    """The measures of a node with so many groups, all led by it."""
    group = SimpleNamespace(
        group_id=7,
        is_leader=True,
        leader="n1",
        term=1,
        out_of_sync=(),
        lags={"n2": 3},
        pending=(1, 10),
        commit_index=9,
        applied_index=7,
    )
    log = SimpleNamespace(syncs=Histogram(), pending_bytes=0, disk_bytes=0)
    held = dict.fromkeys(range(groups), group)
    host: Any = SimpleNamespace(groups=held, applies=Histogram(), connected=set(), tls=None, log=log, bugs=4)
    view: Any = SimpleNamespace(members=list)
    member: Any = SimpleNamespace(control=None, services=None)
    config: Any = SimpleNamespace(cluster_id="c", node_id="n1", me=SimpleNamespace(zone=None))
    disk: Any = SimpleNamespace(free_bytes=1, total_bytes=2, state="ok")
    manager: Any = SimpleNamespace(all=lambda: replicas)
    registration: Any = SimpleNamespace(double=None)
    return Measuring(config, host, view, manager, member, Leaderships(str), disk, registration)


def test_a_look_at_many_groups_leaves_turns_of_the_loop_to_others() -> None:
    """10,000 groups held up all appends of the node for 100 ms at each scrape."""

    async def run() -> tuple[RaftMeasures, int]:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        found = await a_node(groups=10 * GROUPS_A_TURN).look()
        task.cancel()
        return found.raft, turns

    raft, turns = asyncio.run(run())
    assert turns >= 10
    assert raft.groups["partition"].leaders == raft.pending == 10 * GROUPS_A_TURN
    assert (raft.follower_lags, raft.apply_lag) == ({"n2": 3}, 2)


def test_steps_that_met_a_bug_are_told() -> None:
    assert asyncio.run(a_node().look()).bugs == 4


def test_a_look_without_names_reads_no_position_and_no_quota() -> None:
    """Where a stranger asks, the names are thrown away: to gather them took up to 27 ms of the loop."""
    led = replica(10, readers=4)
    led.topic, led.config, led.kept_bytes = "logs", SimpleNamespace(quota_bytes=100), 85
    led.group, led.log = SimpleNamespace(is_leader=True), SimpleNamespace(stored_bytes=85)
    measures = a_node(replicas=[led])
    found = asyncio.run(measures.look(names=True))
    assert (found.group_lags, found.log.quotas, found.log.segment_bytes) == ({"readers": 6}, {"logs": 0.85}, 85)
    led.machine.readers = led.config = None
    found = asyncio.run(measures.look())
    assert (found.group_lags, found.log.quotas, found.log.segment_bytes) == ({}, {}, 85)


def test_a_partition_that_confirms_decisions_one_after_the_other_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy cluster has decisions on their way at each look of a monitor; only those that stay are an alarm."""
    now = 0.0
    monkeypatch.setattr(measuring, "monotonic", lambda: now)
    fences, times, waits = FenceInstalls(Grants()), PendingTimes(), []
    for number in range(1, 5):
        now += 60
        fences.confirmed(BUSY, number - 1)
        fences.record_grant(BUSY, 1, number, 0)
        if number > 1:  # decided anew at each look, and never confirmed
            fences.record_grant(STUCK, 1, 100 + number, 0)
        waits.append(times.longest_s(fences))
        assert set(fences.due) == ({BUSY, STUCK} if number > 1 else {BUSY})
    assert waits == [0, 0, 60, 120]
    fences.confirmed(STUCK, 104)
    assert times.longest_s(fences) == 0


def test_leaderships_are_counted_and_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    watch = Leaderships(lambda group_id: f"orders/{group_id}")
    group: Any = FakeGroup(3, {"n1": 1}, None)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        watch.look(group)
        watch.look(group)
        group.leading = False
        watch.look(group)
        watch.look(group)
    assert [record.getMessage() for record in caplog.records] == [
        "this node leads orders/3 in term 1",
        "this node no longer leads orders/3: in term 1 other does",
    ]
    assert [vars(record)["event"] for record in caplog.records] == [
        {"event": "leadership_won", "group": "orders/3", "term": 1},
        {"event": "leadership_lost", "group": "orders/3", "term": 1, "leader": "other"},
    ]
    assert (watch.won, watch.lost, watch.changed.count) == (1, 1, 4)


def test_the_first_leader_of_a_new_partition_does_not_count_as_a_change_of_leader() -> None:
    """The alert for leaders that change fired where a topic was created every few minutes."""
    watch = Leaderships(str)
    for number, (term, taken) in enumerate(((1, 0), (2, 1), (1, 1)), 1):
        group: Any = FakeGroup(number, {"n1": 1}, None)  # type: ignore[arg-type]
        group._term = term
        watch.look(group)
        assert (watch.won, watch.taken) == (number, taken)


def test_new_members_of_a_group_are_said_by_its_leader_once(caplog: pytest.LogCaptureFixture) -> None:
    watch = Leaderships(lambda group_id: f"orders/{group_id}")
    group: Any = FakeGroup(3, {"n2": 1, "n1": 1}, None)  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO):
        watch.look(group)
        caplog.clear()
        watch.look_at_members({3: group})
        group.configuration = Configuration({"n1": 1, "n2": 1}, {"n3": 5})
        watch.look_at_members({3: group})
        watch.look_at_members({3: group})
        group.configuration = Configuration({"n1": 1, "n2": 1, "n3": 5})
        watch.look_at_members({3: group})
        watch.look_at_members({})
    assert [record.getMessage() for record in caplog.records] == [
        "members of orders/3: n1, n2; n3 being filled",
        "members of orders/3: n1, n2, n3",
    ]


def test_a_group_that_left_this_node_and_came_back_begins_anew() -> None:
    watch = Leaderships(str)
    group: Any = FakeGroup(3, {"n1": 1}, None)  # type: ignore[arg-type]
    watch.look(group)
    watch.forget(3)
    watch.look(group)
    assert (watch.won, watch.lost) == (2, 0)

"""Plans of balance: what holds for any cluster, and what each step is for."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.cluster.balance import board
from stockade.cluster.balance.board import floor_bytes
from stockade.cluster.balance.facts import Bar, Disk, Facts, NodeFacts, PartitionFacts, Plan
from stockade.cluster.balance.plan import make_plan, slack

GB = 1 << 30
BARS: tuple[Bar, ...] = ("leaving", "announced", "away", "unstable", "slow")


def node(
    name: str, zone: str | None = None, free: int = 500, bar: Bar | None = None, *, is_ok: bool = True
) -> NodeFacts:
    """With a disk of 1,000 GB, of which so many are free."""
    return NodeFacts(name, zone, Disk(free * GB, 1_000 * GB, 2 * GB, is_ok), bar)


def part(
    group: int, *replicas: str, leader: str | None = "", size: int = GB, behind: Sequence[str] = ()
) -> PartitionFacts:
    """Led by its first replica, unless another is named; None: by none that is known."""
    led = replicas[0] if leader == "" else leader
    return PartitionFacts(group, list(replicas), led, size, list(behind))


def facts(nodes: Sequence[NodeFacts], parts: Sequence[PartitionFacts]) -> Facts:
    return Facts(nodes, parts, 85)


def carried_out(before: Facts, plan: Plan) -> Facts:
    """The cluster when all of a plan is done."""
    targets = {move.group: list(move.target) for move in plan.moves}
    homes = {transfer.group: transfer.home for transfer in plan.transfers}
    free = Counter[str]()
    parts = []
    for each in before.partitions:
        target = targets.get(each.group, list(each.replicas))
        for node_id in set(each.replicas) - set(target):
            free[node_id] += each.stored_bytes or 0
        for node_id in set(target) - set(each.replicas):
            free[node_id] -= each.stored_bytes or 0
        leader = homes.get(each.group, each.leader)
        if leader is not None and leader not in target:
            leader = target[0]
        behind = [name for name in each.behind if name in target]
        parts.append(msgspec.structs.replace(each, replicas=target, leader=leader, behind=behind))
    nodes = [
        each
        if each.disk is None
        else msgspec.structs.replace(
            each, disk=msgspec.structs.replace(each.disk, free_bytes=each.disk.free_bytes + free[each.node_id])
        )
        for each in before.nodes
    ]
    return Facts(nodes, parts, before.disk_used_percent_max)


@st.composite
def clusters(draw: st.DrawFn, *, are_well: bool = False) -> Facts:
    """Any: nodes of few zones, some barred, some with full disks, some unknown; partitions anywhere, some with replicas
    that are behind unless all ``are_well``.
    """
    names = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    zones = st.sampled_from(["a", "b", "c", None])
    bars = st.one_of(st.none(), st.none(), st.sampled_from(BARS))
    free = st.sampled_from([1, 100, 149, 160, 200, 500])
    nodes = [
        node(name, draw(zones), draw(free), draw(bars), is_ok=draw(st.integers(0, 5)) > 0)
        if draw(st.integers(0, 8))
        else NodeFacts(name, draw(zones), None, "away")
        for name in names
    ]
    parts = []
    for group in range(draw(st.integers(0, 16))):
        factor = draw(st.sampled_from([each for each in (1, 3, 5) if each <= len(names)]))
        replicas = draw(st.permutations(names))[:factor]
        leader = draw(st.one_of(st.sampled_from(replicas), st.sampled_from(replicas), st.none()))
        behind = [name for name in replicas if not are_well and name != leader and draw(st.integers(0, 6)) == 0]
        size = draw(st.one_of(st.none(), st.sampled_from([0, GB, 20 * GB])))
        parts.append(PartitionFacts(group, replicas, leader, size, behind, is_moving=draw(st.integers(0, 9)) == 0))
    return facts(nodes, parts)


def shared(zones: dict[str, object], replicas: Sequence[str]) -> int:
    """Pairs of replicas in one zone."""
    return sum(zones[one] == zones[other] for one, other in combinations(replicas, 2))


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_a_plan_keeps_factor_and_zones_and_gives_nothing_to_a_node_that_is_barred(before: Facts) -> None:
    plan = make_plan(before)
    assert make_plan(before) == plan, "the same facts make the same plan"
    known = {each.group: each for each in before.partitions}
    nodes = {each.node_id: each for each in before.nodes}
    zones: dict[str, object] = {each.node_id: each.zone or (each.node_id,) for each in before.nodes}
    assert len({move.group for move in plan.moves}) == len(plan.moves)
    came = Counter[str]()
    for move in plan.moves:
        was = known[move.group]
        assert not was.is_moving
        assert move.replicas == was.replicas != move.target
        assert len(set(move.target)) == len(move.target) == len(was.replicas), "the replication factor stays"
        assert shared(zones, move.target) <= shared(zones, was.replicas), "no zone gets a second replica for it"
        coming = set(move.target) - set(was.replicas)
        assert (move.why == "home") == (not coming)
        assert move.copied_bytes == (was.stored_bytes or 0) * len(coming)
        for node_id in coming:
            there = nodes[node_id]
            assert there.bar is None
            assert there.disk is not None
            assert there.disk.is_ok
            came[node_id] += was.stored_bytes or 0
        if move.target[0] != was.replicas[0]:
            assert nodes[move.target[0]].bar is None
    for node_id, size in came.items():
        disk = nodes[node_id].disk
        assert disk is not None
        assert disk.free_bytes - size >= floor_bytes(disk, 85) or any(
            node_id in known[move.group].replicas and node_id not in move.target for move in plan.moves
        ), "a disk is not filled, unless it gives, too"
    for transfer in plan.transfers:
        assert nodes[transfer.home].bar is None
        assert transfer.home not in known[transfer.group].behind
        assert transfer.leader == known[transfer.group].leader != transfer.home


@settings(max_examples=150, deadline=None)
@given(clusters(are_well=True))
def test_a_plan_for_the_planned_cluster_has_no_moves_and_only_transfers_of_moved_partitions(before: Facts) -> None:
    plan = make_plan(before)
    planned = carried_out(before, plan)
    after = make_plan(planned)
    assert after.moves == []
    assert {each.group for each in after.transfers} <= {each.group for each in plan.moves if each.why != "home"}
    assert make_plan(carried_out(planned, after)).transfers == []


@settings(max_examples=50, deadline=None)
@given(clusters(), st.integers(1, 4))
def test_plans_that_are_cut_reach_the_same_placement(before: Facts, most: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(board, "MOVES_MAX", most)
        seen = 0
        while (plan := make_plan(before)).moves or plan.transfers:
            assert len(plan.moves) <= most
            before, seen = carried_out(before, plan), seen + 1
            assert seen < 500, "plans undo each other"


def test_partitions_move_to_a_new_node_until_all_hold_as_much() -> None:
    here = [node(name) for name in ("n1", "n2", "n3")]
    parts = [part(group, *[f"n{(group + k) % 3 + 1}" for k in range(3)]) for group in range(40)]
    assert make_plan(facts(here, parts)).moves == []
    before = facts([*here, node("n4")], parts)
    plan = make_plan(before)
    assert {move.why for move in plan.moves} <= {"spread", "home"}
    after = carried_out(before, plan)
    held = Counter(node_id for each in after.partitions for node_id in each.replicas)
    homes = Counter(each.replicas[0] for each in after.partitions)
    assert held == {"n1": 30, "n2": 30, "n3": 30, "n4": 30}
    assert max(homes.values()) - min(homes.values()) <= slack(10)
    assert plan.moves != []


@pytest.mark.parametrize("count", [3, 6, 12, 30, 60])
def test_a_transfer_that_an_operator_orders_is_not_taken_back(count: int) -> None:
    """It makes the target the home, so that the two nodes differ by two homes."""
    names = ["n1", "n2", "n3"]
    parts = [part(group, *[names[(group + k) % 3] for k in range(3)]) for group in range(count)]
    here = [node(name) for name in names]
    assert make_plan(facts(here, parts)).moves == []
    for group, target in product(range(count), names):
        moved = parts[group].replicas
        home = part(group, target, *[name for name in moved if name != target])
        plan = make_plan(facts(here, [*parts[:group], home, *parts[group + 1 :]]))
        assert (plan.moves, plan.transfers) == ([], [])


def test_a_new_node_is_given_nothing_before_it_was_well_for_long_enough() -> None:
    parts = [part(group, "n1", "n2", "n3") for group in range(40)]
    new = node("n4", bar="unstable")
    assert make_plan(facts([node("n1"), node("n2"), node("n3"), new], parts)).barred == {"n4": "unstable"}
    assert all(
        "n4" not in move.target for move in make_plan(facts([node("n1"), node("n2"), node("n3"), new], parts)).moves
    )


def test_a_full_disk_gives_large_partitions_until_enough_is_free_and_gets_none_back() -> None:
    nodes = [node("n1", free=100), *(node(name) for name in ("n2", "n3", "n4"))]
    parts = [part(group, "n1", "n2", "n3", size=(20 if group < 5 else 1) * GB) for group in range(10)]
    before = facts(nodes, parts)
    plan = make_plan(before)
    freed = [move for move in plan.moves if move.why == "disk"]
    assert [move.group < 5 for move in freed] == [True] * len(freed), "the large ones go"
    after = carried_out(before, plan)
    free = {each.node_id: each.disk.free_bytes // GB for each in after.nodes if each.disk}
    assert free["n1"] >= 150 * 9 // 8
    assert all("n1" not in move.target or "n1" in move.replicas for move in plan.moves)


def test_a_node_that_is_given_replicas_keeps_a_quarter_more_room_than_a_full_disk_has() -> None:
    nodes = [*(node(name) for name in ("n1", "n2", "n3")), node("n4", free=200)]
    parts = [part(group, "n1", "n2", "n3", size=10 * GB) for group in range(40)]
    plan = make_plan(facts(nodes, parts))
    assert sum("n4" in move.target for move in plan.moves) == 1, "200 - 10 is above 5/4 of 150, 200 - 20 is not"


def test_a_disk_below_its_watermark_is_full_however_large_it_is() -> None:
    small = NodeFacts("n1", None, Disk(2 * GB, 4 * GB, 2 * GB, is_ok=True))
    plan = make_plan(facts([small, node("n2")], [part(1, "n1")]))
    assert [(move.replicas, move.target, move.why) for move in plan.moves] == [(["n1"], ["n2"], "disk")]


def test_replicas_of_one_zone_part_when_another_zone_comes() -> None:
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("c1", "c")]
    plan = make_plan(facts(nodes, [part(1, "a1", "a2", "b1")]))
    (move,) = plan.moves
    assert move.why == "zone"
    assert "c1" in move.target
    assert len({"a1", "a2"} & set(move.target)) == 1


HOME = ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("nodes", "parts", "goes"),
    [
        ([node(name) for name in HOME], [part(1, *HOME, leader="n2")], True),
        ([node(name) for name in HOME], [part(1, *HOME, leader=None)], False),
        ([node(name) for name in HOME], [part(1, *HOME, leader="n2", behind=["n1"])], False),
        *(([node("n1", bar=bar), node("n2"), node("n3")], [part(1, *HOME, leader="n2")], False) for bar in BARS),
        ([node("n1", is_ok=False), node("n2"), node("n3")], [part(1, *HOME, leader="n2")], False),
        ([NodeFacts("n1", None, None, "away"), node("n2"), node("n3")], [part(1, *HOME, leader="n2")], False),
    ],
)
def test_a_leader_goes_home_only_when_its_home_may_lead(
    nodes: list[NodeFacts], parts: list[PartitionFacts], goes: bool
) -> None:
    plan = make_plan(facts(nodes, parts))
    assert [(each.leader, each.home) for each in plan.transfers] == [("n2", "n1")] * goes


def test_a_partition_that_moves_is_left_alone_and_its_bytes_count_where_they_go() -> None:
    moving = PartitionFacts(1, HOME, "n4", 400 * GB, (), coming=["n1"], going=["n4"], is_moving=True)
    nodes = [node("n1"), node("n2"), node("n3"), node("n4")]
    plan = make_plan(facts(nodes, [moving, *(part(group, "n4", "n2", "n3") for group in range(2, 9))]))
    assert all(move.group != 1 for move in plan.moves)
    assert all(transfer.group != 1 for transfer in plan.transfers)
    assert plan.barred == {"n1": "full"}, "what comes counts already"


def test_a_replica_that_is_behind_keeps_the_others_where_they_are() -> None:
    parts = [part(group, *HOME, behind=["n3"] if group < 20 else []) for group in range(40)]
    plan = make_plan(facts([*(node(name) for name in HOME), node("n4")], parts))
    assert plan.moves
    assert all(move.group >= 20 for move in plan.moves if move.why != "home"), "a partition that lacks a replica rests"


def test_only_a_full_disk_gives_a_replica_that_is_behind_and_no_other_of_that_partition() -> None:
    nodes = [node("n1"), node("n2"), node("n3", free=100), node("n4")]
    parts = [part(1, *HOME, size=20 * GB, behind=["n3"]), part(2, *HOME, size=50 * GB, behind=["n2"])]
    plan = make_plan(facts(nodes, parts))
    (move,) = [move for move in plan.moves if move.why == "disk"]
    assert (move.group, set(move.target)) == (1, {"n1", "n2", "n4"})


@pytest.mark.parametrize(
    ("change", "held"),
    [
        ({"bar": "away"}, {"n3": "away"}),
        ({"bar": "unstable"}, {"n3": "unstable"}),
        ({"bar": "away", "is_given_up": True}, {}),
        ({"version": "2"}, {"n3": "version"}),
        ({"version": None}, {}),
        *(({"bar": bar}, {}) for bar in ("leaving", "announced", "slow", "full")),
        ({"bar": "leaving", "version": "2"}, {}),
    ],
)
def test_a_node_that_is_away_for_a_while_or_runs_other_software_holds_back_all_moves(
    change: dict[str, Any], held: dict[str, str]
) -> None:
    one, two, three = (msgspec.structs.replace(node(name), version="1") for name in HOME)
    assert make_plan(facts([one, two, msgspec.structs.replace(three, **change)], [])).held == held


def test_nothing_moves_for_less_than_a_tenth() -> None:
    nodes = [node(name) for name in ("n1", "n2")]
    parts = [part(group, "n1" if group < 105 else "n2") for group in range(200)]
    assert make_plan(facts(nodes, parts)).moves == []
    parts = [part(group, "n1" if group < 115 else "n2") for group in range(200)]
    assert len(make_plan(facts(nodes, parts)).moves) == 15

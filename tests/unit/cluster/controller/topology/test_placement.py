"""Placement is balanced, spreads over zones, is deterministic, and is quick at the size it must handle."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.cluster.controller.topology.placement import (
    Load,
    Node,
    controllers,
    default_factor,
    measure,
    place,
    within_reach,
)
from stockade.partition.errors import NotEnoughReplicas


def nodes(count: int, zones: int) -> list[Node]:
    """``zones`` 0: every node by itself."""
    return [(f"n{number:03}", f"z{number % zones}" if zones else None) for number in range(count)]


def spread(values: list[int]) -> int:
    return max(values) - min(values)


@pytest.mark.parametrize(
    ("count", "zones", "partitions", "replicas"),
    [(3, 0, 16, 3), (5, 0, 16, 3), (4, 2, 10, 3), (7, 0, 100, 3), (9, 3, 100, 3), (6, 2, 50, 5), (1, 1, 4, 1)],
)
def test_replicas_and_first_replicas_are_balanced(count: int, zones: int, partitions: int, replicas: int) -> None:
    loads = measure(place(partitions, replicas, nodes(count, zones), {}))
    assert len(loads) == count
    assert spread([load.firsts for load in loads.values()]) <= 1
    assert spread([load.replicas for load in loads.values()]) <= 2


def test_a_hundred_nodes_in_three_zones_take_ten_thousand_partitions_quickly() -> None:
    members = nodes(100, 3)
    zones = dict(members)
    started_s = time.process_time()
    placed = place(10_000, 3, members, {})
    took_s = time.process_time() - started_s
    loads = measure(placed)
    assert spread([load.firsts for load in loads.values()]) <= 1
    # 34 nodes of the first zone share what 33 of each other zone do.
    assert spread([load.replicas for load in loads.values()]) <= 10
    assert all(len({zones[node_id] for node_id in replicas}) == 3 for replicas in placed)
    assert took_s < 3, "ten times what it takes on a slow machine"


def test_the_partitions_of_a_lost_node_are_on_nearly_all_others() -> None:
    members = nodes(40, 10)
    zones = dict(members)
    for scattered, others_min, others_max in ((True, 30, 36), (False, 1, 12)):
        placed = place(4_000, 3, members, {}, scattered=scattered)
        loads = measure(placed)
        assert spread([load.firsts for load in loads.values()]) <= 1
        assert spread([load.replicas for load in loads.values()]) <= 2
        assert all(len({zones[node_id] for node_id in replicas}) == 3 for replicas in placed)
        others = {other for replicas in placed if "n000" in replicas for other in replicas} - {"n000"}
        assert others_min <= len(others) <= others_max


def test_where_every_node_has_a_replica_nothing_is_scattered() -> None:
    assert place(5, 3, nodes(3, 0), {}, scattered=True) == place(5, 3, nodes(3, 0), {})


def test_a_new_topic_is_placed_on_the_least_loaded_nodes() -> None:
    members = nodes(5, 0)
    first = place(1, 3, members, {})
    second = place(4, 3, members, measure(first))
    loads = measure([*first, *second])
    assert {load.replicas for load in loads.values()} == {3}
    assert {load.firsts for load in loads.values()} == {1}


def test_loaded_nodes_get_no_replica_while_others_have_none() -> None:
    loads = {"n000": Load(replicas=100, firsts=100), "n001": Load(replicas=100, firsts=100)}
    placed = place(10, 3, nodes(5, 0), loads)
    assert all({"n002", "n003", "n004"} == set(replicas) for replicas in placed)


def test_with_fewer_zones_than_replicas_they_fill_evenly() -> None:
    members: list[Node] = [("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b"), ("b4", "b")]
    assert all(Counter(node_id[0] for node_id in replicas) == {"a": 1, "b": 4} for replicas in place(5, 5, members, {}))
    assert all("a1" in replicas for replicas in place(10, 3, members, {}))


@given(
    st.lists(st.sampled_from([None, "x", "y", "z"]), min_size=1, max_size=9),
    st.integers(1, 7),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_replicas_are_distinct_and_zones_level_whatever_the_cluster(
    zones: list[str | None], replicas: int, partitions: int, random: object
) -> None:
    members: list[Node] = [(f"n{number}", zone) for number, zone in enumerate(zones)]
    replicas = min(replicas, len(members))
    placed = place(partitions, replicas, members, {})
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place(partitions, replicas, shuffled, {}) == placed, "the order of the nodes does not matter"
    zone_of = {node_id: zone or node_id for node_id, zone in members}
    sizes = Counter(zone_of.values())
    assert len(placed) == partitions
    for chosen in placed:
        assert len(set(chosen)) == replicas
        used = Counter(zone_of[node_id] for node_id in chosen)
        level = max(used.values())
        assert all(used[zone] >= level - 1 or used[zone] == size for zone, size in sizes.items())


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        pytest.param((1, 1, 1), "a1 b1 c1", id="one node a zone"),
        pytest.param((2, 2, 2), "a1 a2 b1 b2 c1", id="equal zones"),
        pytest.param((9, 9, 9), "a1 a2 b1 b2 c1", id="five at most"),
        pytest.param((4, 4, 4, 4, 4), "a1 b1 c1 d1 e1", id="a zone each before any zone has two"),
        pytest.param((4, 1, 1), "a1 b1 c1", id="five would give one zone the majority"),
        pytest.param((3, 2, 1), "a1 a2 b1 b2 c1", id="no zone has the majority"),
        pytest.param((4, 4), "a1 a2 a3 b1 b2", id="fewer zones than controllers"),
        pytest.param((1, 2), "a1 b1 b2", id="two zones"),
        pytest.param((3,), "a1 a2 a3", id="one zone"),
        pytest.param((2,), "a1", id="two nodes are no more than one"),
        pytest.param((1, 1), "a1", id="two zones of one node"),
        pytest.param((1,), "a1", id="one node"),
    ],
)
def test_controllers_are_founded_over_distinct_zones_first(sizes: tuple[int, ...], found: str) -> None:
    members: list[Node] = [
        (f"{zone}{number}", zone) for zone, size in zip("abcde", sizes, strict=False) for number in range(1, size + 1)
    ]
    assert controllers(members, 5) == found.split()


@given(st.lists(st.sampled_from([None, "x", "y", "z"]), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_no_zone_has_a_majority_of_the_controllers_wherever_there_are_three(
    zones: list[str | None], random: object
) -> None:
    members: list[Node] = [(f"n{number:02}", zone) for number, zone in enumerate(zones)]
    found = controllers(members, 5)
    shuffled = list(members)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert controllers(shuffled, 5) == found, "the order of the members does not matter"
    assert len(found) % 2 == 1
    assert len(set(found)) == len(found) <= 5
    zone_of = {node_id: zone or node_id for node_id, zone in members}
    held = Counter(zone_of[node_id] for node_id in found)
    if len(set(zone_of.values())) >= 3:
        assert len(found) >= 3
        assert 2 * max(held.values()) < len(found)


@given(st.sets(st.integers(0, 9)), st.integers(1, 10), st.integers(1, 7))
def test_new_partitions_have_a_majority_of_their_replicas_on_nodes_that_are_up(
    up: set[int], count: int, factor: int
) -> None:
    """They were placed on nodes that were known to be away, and had no leader until those came back."""
    members: list[Node] = [(f"n{number}", None) for number in range(count)]
    present = {f"n{number}" for number in up}
    here = [node for node in members if node[0] in present]
    try:
        found = within_reach(members, present.__contains__, factor)
    except NotEnoughReplicas:
        assert 2 * len(here) <= factor <= count
        return
    assert [node for node in found if node[0] in present] == here
    if len(found) > len(here):
        assert len(found) == min(factor, count)
    if factor <= len(found):
        for replicas in place(5, factor, found, {}):
            assert 2 * sum(node_id in present for node_id in replicas) > factor


def test_a_refusal_to_place_a_partition_names_the_nodes_that_are_away() -> None:
    members: list[Node] = [("n1", None), ("n2", None), ("n3", None)]
    with pytest.raises(NotEnoughReplicas, match="replication factor 3: no majority of replicas is up without n2, n3"):
        within_reach(members, {"n1"}.__contains__, 3)
    assert within_reach(members, {"n1"}.__contains__, 1) == [("n1", None)]
    assert within_reach(members, {"n1", "n3"}.__contains__, 3) == [("n1", None), ("n3", None), ("n2", None)]
    assert default_factor(3) == 3
    assert default_factor(2) == 1

"""Nodes come and go, and replicas move: as the controller's machine decides it."""

import msgspec
import pytest

from stockade.cluster.controller.balance import ChooseControllers, PlacedMove, Rebalance, SetBalance
from stockade.cluster.controller.commands import (
    AddNode,
    Arranged,
    CheckMove,
    CreateTopic,
    Done,
    MoveDone,
    RaiseFeatureLevel,
    Reassign,
    RegisterNode,
    RemoveNode,
    RemoveZone,
    TopicCreated,
)
from stockade.cluster.controller.topology import nodes as nodes_module
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP, Catalog, group_id
from stockade.cluster.controller.topology.moves import Move
from stockade.cluster.controller.topology.replica_assignment import ReplicaAssignment, SavedReplicaAssignment
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import (
    FeatureUpdateFailed,
    InvalidRequest,
    NotEnoughReplicas,
    NotFound,
    PlanChanged,
    StockadeError,
    ThrottlingQuotaExceeded,
    UnknownTopicOrPartition,
)

from ...driver import Driver

NODES = ("n1", "n2", "n3", "n4")
CONTROLLERS = ["n1", "n2", "n3"]


class Cluster(Driver):
    """Four nodes, three of them controllers, and a topic ``t`` on three of them."""

    def __init__(self, nodes: tuple[str, ...] = NODES, controllers: list[str] = CONTROLLERS) -> None:
        super().__init__(replicas=2)
        for node_id in nodes:
            assert self.register(node_id, controllers=controllers) == Arranged()
        self.membership = self.machine.assignment

    def register(
        self, node_id: str, incarnation: int = 1, controllers: list[str] = CONTROLLERS, zone: str | None = None
    ) -> object:
        url, raft = f"http://{node_id}:1", f"{node_id}:2"
        return self.do(
            RegisterNode(
                now_ms=0,
                node_id=node_id,
                url=url,
                raft=raft,
                zone=zone,
                incarnation=incarnation,
                controllers=controllers,
            )
        )

    def add(self, node_id: str) -> object:
        return self.do(AddNode(now_ms=0, node_id=node_id, url=f"http://{node_id}:1", raft=f"{node_id}:2", zone=None))

    def remove(self, node_id: str) -> object:
        return self.do(RemoveNode(now_ms=0, node_id=node_id))

    def drain(self, zone: str) -> object:
        return self.do(RemoveZone(now_ms=0, zone=zone))

    def reassign(self, *replicas: str, partition: int = 0, topic: str = "t") -> object:
        return self.do(Reassign(now_ms=0, topic=topic, partition=partition, replicas=list(replicas)))

    def arrive(self, group: int) -> object:
        version = self.membership.moves[group].version
        assert self.do(CheckMove(now_ms=0, group_id=group, version=version)) == Done()
        return self.do(MoveDone(now_ms=0, group_id=group, version=version))

    def placed(self, partition: int = 0) -> list[str]:
        topic = self.machine.catalog.topic("t")
        assert topic is not None
        return topic.placements[partition]

    def founders(self, partition: int = 0) -> dict[str, int]:
        topic = self.machine.catalog.topic("t")
        assert topic is not None
        return topic.founders[partition]


def moved(cluster: Cluster, *replicas: str) -> int:
    """A topic, and its partition 0 on the way; its group."""
    group = group_id(cluster.topic(), 0)
    assert cluster.reassign(*replicas) == Arranged()
    return group


def test_a_new_topic_is_founded_by_the_disks_that_its_nodes_have_then() -> None:
    cluster = Cluster()
    cluster.register("n2", incarnation=7)
    cluster.topic()
    assert cluster.founders() == {"n1": 1, "n2": 7, "n3": 1}
    cluster.register("n2", incarnation=8)
    assert cluster.founders()["n2"] == 7, "a wiped node is no founder"


def test_a_move_is_placed_at_both_ends_until_it_has_arrived() -> None:
    cluster = Cluster()
    group = moved(cluster, "n4", "n2", "n3")
    assert cluster.placed() == ["n1", "n2", "n3", "n4"]
    assert cluster.founders() == {"n1": 1, "n2": 1, "n3": 1}
    assert cluster.arrive(group) == Arranged()
    assert cluster.placed() == ["n4", "n2", "n3"]
    assert cluster.founders() == {}, "from now on everybody joins the group as it is"
    assert cluster.membership.moves == {}


def test_a_report_of_another_move_is_refused() -> None:
    cluster = Cluster()
    group = moved(cluster, "n1", "n2", "n4")
    first = cluster.membership.moves[group].version
    cluster.reassign("n1", "n2", "n3")
    assert cluster.placed() == ["n1", "n2", "n3", "n4"], "n4 may have a part of it already"
    for refused in (
        CheckMove(now_ms=0, group_id=group, version=first),
        MoveDone(now_ms=0, group_id=group, version=first),
    ):
        assert cluster.do(refused) == NotFound(what="move")
    cluster.arrive(group)
    assert cluster.placed() == ["n1", "n2", "n3"]
    assert cluster.do(MoveDone(now_ms=0, group_id=group, version=first)) == NotFound(what="move")


def test_the_same_reassignment_again_changes_nothing() -> None:
    cluster = Cluster()
    group = moved(cluster, "n1", "n2", "n4")
    before = cluster.membership.moves[group]
    assert cluster.reassign("n1", "n2", "n4") == Arranged()
    assert cluster.membership.moves[group] == before
    cluster.arrive(group)
    assert cluster.reassign("n4", "n1", "n2") == Arranged()
    assert (cluster.membership.moves, cluster.placed()) == ({}, ["n4", "n1", "n2"]), "only their order is another"


@pytest.mark.parametrize(
    ("replicas", "partition", "topic", "refusal"),
    [
        (("n1", "n2", "n9"), 0, "t", NotFound(what="node")),
        (("n1", "n2"), 0, "t", InvalidRequest("replicas: not an odd number of different nodes, 7 at most")),
        (("n1", "n1", "n2"), 0, "t", InvalidRequest("replicas: not an odd number of different nodes, 7 at most")),
        ((), 0, "t", InvalidRequest("replicas: not an odd number of different nodes, 7 at most")),
        (("n1",), 2, "t", UnknownTopicOrPartition(topic="t", partition=2)),
        (("n1",), 0, "other", UnknownTopicOrPartition(topic="other", partition=None)),
        (("n1", "n2", "n4"), 0, "t", InvalidRequest("replicas: n4 is being removed")),
    ],
)
def test_a_reassignment_to_wrong_nodes_is_refused(
    replicas: tuple[str, ...], partition: int, topic: str, refusal: StockadeError
) -> None:
    cluster = Cluster()
    cluster.topic()
    moved_away = Cluster.reassign(cluster, "n4", "n2", "n3", partition=1)
    assert moved_away == Arranged()
    cluster.arrive(group_id(5, 1))
    if "n4" in replicas:
        assert cluster.remove("n4") == Arranged()
    assert cluster.reassign(*replicas, partition=partition, topic=topic) == refusal


def test_a_deleted_topic_moves_no_more() -> None:
    cluster = Cluster()
    group = moved(cluster, "n1", "n2", "n4")
    cluster.delete()
    assert cluster.membership.moves == {}
    assert cluster.do(CheckMove(now_ms=0, group_id=group, version=6)) == NotFound(what="move")


def test_a_removed_node_leaves_when_all_its_replicas_have_moved() -> None:
    cluster = Cluster()
    topic_id = cluster.topic()
    assert cluster.remove("n2") == Arranged()
    assert {group: sorted(move.target) for group, move in cluster.membership.moves.items()} == {
        CONTROLLER_GROUP: ["n1", "n3", "n4"],
        group_id(topic_id, 0): ["n1", "n3", "n4"],
        group_id(topic_id, 1): ["n1", "n3", "n4"],
    }
    version = cluster.membership.moves[CONTROLLER_GROUP]
    assert cluster.remove("n2") == Arranged()
    assert cluster.membership.moves[CONTROLLER_GROUP] == version, "asking again changes nothing"
    for group in list(cluster.membership.moves):
        assert cluster.membership.nodes.rows["n2"].draining
        cluster.arrive(group)
    assert "n2" not in cluster.membership.nodes.rows
    assert cluster.membership.controllers == ["n1", "n3", "n4"]
    assert cluster.register("n2") == NotFound(what="node"), "it does not come back by itself"
    assert cluster.remove("n2") == NotFound(what="node")
    cluster.add("n2")
    assert cluster.register("n2", incarnation=2) == Arranged()
    assert cluster.membership.nodes.rows["n2"].takes_replicas


def test_a_removed_node_without_replicas_leaves_at_once() -> None:
    cluster = Cluster()
    cluster.topic()
    assert cluster.remove("n4") == Arranged()
    assert sorted(cluster.membership.nodes.rows) == CONTROLLERS


def test_a_removal_is_refused_when_no_other_node_can_take_the_replicas() -> None:
    cluster = Cluster(("n1", "n2", "n3"))
    assert cluster.remove("n3") == Arranged(), "without topics only the controller group moves"
    assert cluster.membership.moves[CONTROLLER_GROUP] == Move(CONTROLLER_GROUP, 4, ["n1"])
    full = Cluster(("n1", "n2", "n3"))
    full.topic()
    refused = full.remove("n3")
    assert isinstance(refused, NotEnoughReplicas)
    assert refused.detail == "t/0 has 3 replicas, and without n3 it could have 2: add nodes first, or move it to fewer"
    assert full.membership.moves == {}
    alone = Cluster(("n1",), ["n1"])
    assert alone.remove("n1") == NotEnoughReplicas()


def test_two_nodes_can_go_at_the_same_time() -> None:
    cluster = Cluster((*NODES, "n5"))
    topic_id = cluster.topic()
    cluster.remove("n1")
    cluster.remove("n2")
    assert {tuple(sorted(move.target)) for move in cluster.membership.moves.values()} == {("n3", "n4", "n5")}
    for partition in range(2):
        cluster.arrive(group_id(topic_id, partition))
    cluster.arrive(CONTROLLER_GROUP)
    assert sorted(cluster.membership.nodes.rows) == ["n3", "n4", "n5"]


def test_no_new_replica_is_placed_on_a_draining_node() -> None:
    cluster = Cluster((*NODES, "n5"))
    cluster.topic("old")
    cluster.remove("n3")
    cluster.topic("t")
    assert "n3" not in cluster.placed(0) + cluster.placed(1)


def test_a_removal_is_called_off_by_adding_the_node_again() -> None:
    cluster = Cluster()
    cluster.topic()
    cluster.remove("n2")
    assert cluster.add("n2") == Arranged()
    assert cluster.membership.nodes.rows["n2"].takes_replicas, "its disk is known"
    for group in list(cluster.membership.moves):
        cluster.arrive(group)
    assert "n2" in cluster.membership.nodes.rows


def test_an_announced_node_gets_no_replica_before_it_registers() -> None:
    cluster = Cluster(("n1",), ["n1"])
    cluster.add("n2")
    assert [entry.node_id for entry in cluster.membership.nodes.eligible()] == ["n1"]
    cluster.register("n2")
    assert [entry.node_id for entry in cluster.membership.nodes.eligible()] == ["n1", "n2"]


def test_a_single_controller_becomes_three_when_three_nodes_are_registered() -> None:
    cluster = Cluster(("n1", "n2"), ["n1"])
    assert cluster.membership.moves == {}
    cluster.register("n3")
    assert cluster.membership.moves[CONTROLLER_GROUP].target == ["n1", "n2", "n3"]
    cluster.register("n4")
    cluster.arrive(CONTROLLER_GROUP)
    assert cluster.membership.controllers == ["n1", "n2", "n3"]


def test_the_number_of_nodes_and_of_names_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_module, "NODES_MAX", 4)
    monkeypatch.setattr(nodes_module, "REMOVED_MAX", 1)
    cluster = Cluster()
    throttled = ThrottlingQuotaExceeded(retry_after_ms=1000)
    assert cluster.register("n5") == throttled
    assert cluster.add("n5") == throttled
    assert cluster.register("n4", incarnation=9) == Arranged(), "it is known"
    cluster.remove("n4")
    assert cluster.add("n5") == Arranged()
    cluster.remove("n5")
    assert cluster.membership.nodes.removed == ["n5"]


MACHINES = ("a.1", "a.2", "b.1", "b.2", "c.1", "c.2")


def machines(names: tuple[str, ...] = MACHINES, controllers: list[str] = CONTROLLERS) -> Cluster:
    """Nodes whose zone is the machine that they run on."""
    cluster = Cluster((), controllers)
    for name in names:
        assert cluster.register(name, controllers=controllers, zone=name[0]) == Arranged()
    return cluster


def spread(cluster: Cluster) -> None:
    """A topic ``t`` of two partitions, placed on these machines."""
    nodes = [(entry.node_id, entry.zone) for entry in cluster.membership.nodes.eligible()]
    made = CreateTopic(now_ms=0, name="t", partitions=2, replication_factor=3, config=TopicConfig(), nodes=nodes)
    assert isinstance(cluster.do(made), TopicCreated)


def test_a_drained_machine_gives_everything_to_others_and_nothing_to_itself() -> None:
    cluster = machines(controllers=["a.1", "a.2", "b.1", "b.2", "c.1"])
    spread(cluster)
    assert {name[0] for name in cluster.placed()} == {"a", "b", "c"}
    assert cluster.drain("a") == Arranged()
    targets = [name for move in cluster.membership.moves.values() for name in move.target]
    assert {name[0] for name in targets} == {"b", "c"}
    assert sorted(cluster.membership.moves[CONTROLLER_GROUP].target) == ["b.1", "b.2", "c.1"], "an odd number is left"
    before = dict(cluster.membership.moves)
    assert cluster.drain("a") == Arranged()
    assert cluster.membership.moves == before, "asking again changes nothing"
    for group in list(cluster.membership.moves):
        cluster.arrive(group)
    assert sorted(cluster.membership.nodes.rows) == ["b.1", "b.2", "c.1", "c.2"]
    assert cluster.drain("a") == NotFound(what="node")


def test_a_machine_whose_replicas_have_no_place_elsewhere_stays_whole() -> None:
    cluster = machines(("a.1", "a.2", "b.1", "c.1"), ["a.1", "b.1", "c.1"])
    spread(cluster)
    assert cluster.drain("a") == NotEnoughReplicas()
    assert cluster.membership.moves == {}
    assert all(not entry.draining for entry in cluster.membership.nodes.rows.values())
    alone = machines(("a.1", "a.2", "a.3"), ["a.1", "a.2", "a.3"])
    assert alone.drain("a") == NotEnoughReplicas()


def test_a_move_to_another_node_of_a_draining_machine_gets_another_target() -> None:
    cluster = machines((*MACHINES, "d.1"), ["b.1", "c.1", "d.1"])
    group = moved(cluster, "a.1", "b.1", "c.1")
    cluster.arrive(group)
    cluster.reassign("a.2", "b.1", "c.1")
    assert cluster.drain("a") == Arranged()
    assert cluster.membership.moves[group].target == ["b.1", "c.1", "d.1"]
    assert cluster.placed() == ["a.1", "b.1", "c.1", "a.2", "d.1"], "what a.2 has begun to copy is erased in the end"


def test_the_removal_of_a_node_continues_when_its_machine_is_drained() -> None:
    cluster = machines(controllers=["b.1", "b.2", "c.1"])
    spread(cluster)
    cluster.remove("a.1")
    assert cluster.drain("a") == Arranged()
    for group in list(cluster.membership.moves):
        cluster.arrive(group)
    assert sorted(cluster.membership.nodes.rows) == ["b.1", "b.2", "c.1", "c.2"]


def test_controllers_that_are_on_one_machine_are_spread_as_soon_as_there_are_three() -> None:
    cluster = machines(("a.1", "a.2", "a.3"), ["a.1", "a.2", "a.3"])
    cluster.register("b.1", zone="b")
    assert cluster.membership.moves == {}, "one of two machines has the majority in any case"
    cluster.register("c.1", zone="c")
    assert sorted(cluster.membership.moves[CONTROLLER_GROUP].target) == ["a.1", "b.1", "c.1"]
    cluster.register("c.2", zone="c")
    cluster.arrive(CONTROLLER_GROUP)
    assert cluster.register("b.1", zone="b", incarnation=2) == Arranged()
    assert cluster.membership.moves == {}, "no zone has a majority any more"


def test_controllers_are_spread_again_when_a_machine_that_was_drained_comes_back() -> None:
    cluster = machines(controllers=["a.1", "b.1", "c.1"])
    cluster.drain("a")
    cluster.arrive(CONTROLLER_GROUP)
    assert sorted(name[0] for name in cluster.membership.controllers) in (["b", "b", "c"], ["b", "c", "c"])
    cluster.do(AddNode(now_ms=0, node_id="a.2", url="http://a.2:1", raft="a.2:2", zone="a"))
    assert cluster.membership.moves == {}, "it has only been announced"
    cluster.register("a.2", zone="a")
    assert sorted(name[0] for name in cluster.membership.moves[CONTROLLER_GROUP].target) == ["a", "b", "c"]


def test_of_five_controllers_only_those_beyond_a_zones_minority_move() -> None:
    cluster = machines(("a.1", "a.2", "a.3", "a.4", "b.1", "c.1"), ["a.1", "a.2", "a.3", "b.1", "c.1"])
    assert cluster.membership.moves == {}, "no other zone has a node for it"
    cluster.register("b.2", zone="b")
    assert sorted(cluster.membership.moves[CONTROLLER_GROUP].target) == ["a.1", "a.2", "b.1", "b.2", "c.1"]


def test_nothing_moves_while_the_founders_register_one_by_one() -> None:
    founders = ["a.1", "a.2", "b.1", "b.2", "c.1"]
    cluster = machines(controllers=founders)
    assert (cluster.membership.moves, cluster.membership.controllers) == ({}, founders)


def test_a_removal_with_if_plan_makes_the_planned_moves_or_none() -> None:
    cluster = Cluster()
    cluster.topic("t", partitions=2, replicas=3)
    plan = cluster.membership.removal(["n1"])
    assert plan == cluster.membership.removal(["n1"]), "a look changes nothing"
    assert [(move.topic, move.partition) for move in plan.moves] == [(None, None), ("t", 0), ("t", 1)]
    assert all("n1" in move.replicas and "n1" not in move.target for move in plan.moves)
    cluster.topic("later", partitions=1, replicas=3)
    new = cluster.membership.removal(["n1"])
    stale = RemoveNode(now_ms=0, node_id="n1", if_plan=plan.plan)
    assert cluster.do(stale) == PlanChanged(plan=new.plan)
    assert not cluster.membership.moves
    assert cluster.do(RemoveNode(now_ms=0, node_id="n1", if_plan=new.plan)) == Arranged()
    moved = {each.group_id: each.target for each in cluster.membership.moves.values()}
    assert list(moved.values()) == [move.target for move in new.moves]


def test_a_removal_moves_replicas_to_an_unreachable_node_only_where_there_is_no_other() -> None:
    """Moves to it waited for as long as it was away, and the node that was removed could not be stopped."""
    nodes = ("n1", "n2", "n3", "n4", "n5")
    cluster = Cluster(nodes=nodes, controllers=["n1", "n2", "n3"])
    cluster.topic("t", partitions=10, replicas=3)
    plan = cluster.membership.removal(["n1"], ["n4"])
    assert plan.moves, "something leaves"
    for move in plan.moves:
        assert "n4" in move.replicas or "n4" not in move.target
    both_away = cluster.membership.removal(["n1"], ["n4", "n5"])
    came = {node for move in both_away.moves for node in set(move.target) - set(move.replicas)}
    assert came & {"n4", "n5"}, "partitions of n1, n2 and n3 have no other place"
    refused = cluster.do(
        RemoveNode(now_ms=0, node_id="n1", if_plan=cluster.membership.removal(["n1"]).plan, away=["n4"])
    )
    assert isinstance(refused, PlanChanged)
    assert cluster.do(RemoveNode(now_ms=0, node_id="n1", if_plan=plan.plan, away=["n4"])) == Arranged()


def test_the_removal_of_a_zone_has_a_plan_of_all_its_nodes() -> None:
    cluster = Cluster(nodes=(), controllers=["n1"])
    for node_id, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "c"), ("n5", "d")):
        cluster.register(node_id, zone=zone, controllers=["n1"])
    cluster.topic("t", partitions=1, replicas=3)
    plan = cluster.membership.removal(["n1", "n2"])
    assert cluster.do(RemoveZone(now_ms=0, zone="a", if_plan="0")) == PlanChanged(plan=plan.plan)
    assert cluster.do(RemoveZone(now_ms=0, zone="a", if_plan=plan.plan)) == Arranged()


def test_the_feature_level_is_raised_only_when_every_registered_node_supports_it() -> None:
    cluster = Cluster()
    cluster.add("n9")  # announced, and never came: it is asked when it comes
    refused = cluster.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=["n1", "n2", "n4"]))
    assert refused == FeatureUpdateFailed(nodes=["n3"], feature_level=1)
    assert cluster.membership.feature_level == 1
    assert cluster.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=list(NODES))) == Arranged()
    assert (cluster.membership.feature_level, cluster.machine.catalog_index) == (2, cluster.machine.applied_index)


def test_a_feature_level_never_goes_down_and_the_same_again_changes_nothing() -> None:
    cluster = Cluster()
    for level, after in ((3, 3), (2, 3), (3, 3), (1, 3)):
        assert cluster.do(RaiseFeatureLevel(now_ms=0, level=level, supporting=list(NODES))) == Arranged()
        assert cluster.membership.feature_level == after


def test_the_feature_level_is_in_a_checkpoint_and_one_of_before_has_level_1() -> None:
    cluster = Cluster()
    without = msgspec.msgpack.decode(msgspec.msgpack.encode(cluster.membership.save()))
    assert without.pop("feature_level") == 1
    assert msgspec.convert(without, SavedReplicaAssignment).feature_level == 1
    cluster.do(RaiseFeatureLevel(now_ms=0, level=2, supporting=list(NODES)))
    restored = ReplicaAssignment(Catalog())
    restored.load(cluster.membership.save())
    assert restored.feature_level == 2


def rebalance(cluster: Cluster, *moves: PlacedMove) -> object:
    return cluster.do(Rebalance(now_ms=0, moves=list(moves)))


def test_a_plan_of_moves_is_begun_as_a_whole_or_not_at_all() -> None:
    cluster = Cluster()
    topic = cluster.topic("t", partitions=3, replicas=3)
    groups, placed = [group_id(topic, number) for number in range(3)], [cluster.placed(number) for number in range(3)]
    fourth = ["n1", "n2", "n4"]
    moves = [PlacedMove(group, here, fourth) for group, here in zip(groups, placed, strict=True) if here != fourth]
    assert len(moves) > 1
    stale = PlacedMove(groups[2], ["n1", "n3", "n4", "n2"][:3], fourth)
    assert isinstance(rebalance(cluster, *moves[:1], stale), PlanChanged) or stale.replicas == placed[2]
    cluster.reassign("n2", "n3", "n4", partition=0)
    assert rebalance(cluster, *moves) == PlanChanged(), "one of them moves already, by another order"
    assert list(cluster.membership.moves) == [groups[0]]
    cluster.arrive(groups[0])
    assert rebalance(cluster, *moves) == PlanChanged(), "it is somewhere else now"
    assert not cluster.membership.moves
    rest = [move for move in moves if move.group_id != groups[0]]
    assert rebalance(cluster, *rest) == Arranged()
    assert {move.group_id: move.target for move in cluster.membership.moves.values()} == {
        move.group_id: fourth for move in rest
    }
    assert rebalance(cluster, *rest) == PlanChanged(), "it has begun"
    for move in rest:
        cluster.arrive(move.group_id)
    assert cluster.reassign(fourth[0], partition=1) == Arranged()
    assert cluster.placed(1) == fourth, "two replicas are to go, and none comes"
    assert rebalance(cluster, PlacedMove(groups[1], fourth, ["n1", "n2", "n3"])) == PlanChanged()


def test_a_rebalance_keeps_the_replication_factor_and_names_no_draining_or_unknown_node() -> None:
    cluster = Cluster(nodes=("n1", "n2", "n3", "n4", "n5"))
    group, here = group_id(cluster.topic("t", partitions=1, replicas=3), 0), cluster.placed()
    others = [node_id for node_id in ("n1", "n2", "n3", "n4", "n5") if node_id not in here]
    for target in (here[:1], [*here[:2], here[0]], [*here, *others]):
        assert isinstance(rebalance(cluster, PlacedMove(group, here, target)), InvalidRequest)
    assert isinstance(rebalance(cluster, PlacedMove(group, here, [*here[:2], "n9"])), NotFound)
    cluster.topic("u", partitions=10, replicas=3)
    cluster.add("n6")
    assert isinstance(rebalance(cluster, PlacedMove(group, here, [*here[:2], "n6"])), InvalidRequest), "only announced"
    cluster.register("n6")
    assert cluster.reassign(others[0], *here[:2], topic="u") == Arranged()
    assert cluster.remove(others[0]) == Arranged()
    leaving = PlacedMove(group, here, [*here[:2], others[0]])
    assert isinstance(rebalance(cluster, leaving), InvalidRequest)
    twice = PlacedMove(group, here, here[::-1])
    assert isinstance(rebalance(cluster, twice, twice), InvalidRequest)
    assert rebalance(cluster, twice) == Arranged()
    assert cluster.placed() == here[::-1], "an order of replicas copies nothing, and is there at once"


def test_settings_of_balance_are_merged_and_bounded_and_survive_a_checkpoint() -> None:
    cluster = Cluster()
    before = cluster.membership.balance
    assert cluster.do(SetBalance(now_ms=0, changes={"mode": "leaders"})) == Arranged()
    assert cluster.do(SetBalance(now_ms=0, changes={"moves_at_once": 9})) == Arranged()
    for changes in ({"mode": "x"}, {"moves_at_once": 0}, {"stable_ms": 1}, {"pace": 1}, {"moves_at_once": "9"}):
        assert isinstance(cluster.do(SetBalance(now_ms=0, changes=changes)), InvalidRequest)
    found = cluster.membership.balance
    assert (found.mode, found.moves_at_once, found.stable_ms) == ("leaders", 9, before.stable_ms)
    assert cluster.membership.save().balance == found


def choose(cluster: Cluster, *node_ids: str, if_plan: str | None = None) -> object:
    return cluster.do(ChooseControllers(now_ms=0, node_ids=list(node_ids) or None, if_plan=if_plan))


def test_chosen_controllers_stay_where_they_are_until_the_cluster_spreads_them_again() -> None:
    cluster = Cluster(nodes=(), controllers=["a.1", "b.1", "c.1"])
    for node_id in ("a.1", "a.2", "a.3", "b.1", "c.1"):
        cluster.register(node_id, zone=node_id[0], controllers=["a.1", "b.1", "c.1"])
    plan = cluster.membership.choice(["a.1", "a.2", "a.3"])
    assert (plan.controllers, plan.outlives_a_zone) == (["a.1", "b.1", "c.1"], False)
    assert choose(cluster, "a.1", "a.2", "a.3", if_plan="0") == PlanChanged(plan=plan.plan)
    assert choose(cluster, "a.1", "a.2", "a.3", if_plan=plan.plan) == Arranged()
    cluster.arrive(CONTROLLER_GROUP)
    assert sorted(cluster.membership.controllers) == ["a.1", "a.2", "a.3"]
    cluster.register("d.1", zone="d", controllers=[])
    assert not cluster.membership.moves, "an operator chose them"
    for wrong in (("a.1", "b.1"), ("a.1", "a.1", "b.1"), ("a.1", "a.2", "a.3", "b.1", "c.1", "d.1", "a.1")):
        assert isinstance(choose(cluster, *wrong), InvalidRequest)
    assert isinstance(choose(cluster, "x.1"), NotFound)
    assert choose(cluster) == Arranged()
    cluster.arrive(CONTROLLER_GROUP)
    assert len({node_id[0] for node_id in cluster.membership.controllers}) == 3
    assert not cluster.membership.save().are_chosen


def test_chosen_controllers_are_spread_again_once_one_of_them_is_removed() -> None:
    names = ["a.1", "b.1", "c.1"]
    cluster = Cluster(nodes=(), controllers=names)
    for node_id in (*names, "a.2", "b.2"):
        cluster.register(node_id, zone=node_id[0], controllers=names)
    assert choose(cluster, *names) == Arranged()
    assert cluster.remove("b.2") == Arranged()
    assert cluster.membership.are_chosen, "that one was none of them"
    assert cluster.remove("c.1") == Arranged()
    cluster.arrive(CONTROLLER_GROUP)
    assert sorted(cluster.membership.controllers) == ["a.1", "a.2", "b.1"]
    cluster.register("c.2", zone="c", controllers=names)
    cluster.arrive(CONTROLLER_GROUP)
    assert {node_id[0] for node_id in cluster.membership.controllers} == {"a", "b", "c"}


def test_controllers_that_the_cluster_spreads_again_while_they_move_are_an_odd_number() -> None:
    cluster = Cluster(nodes=(), controllers=["n1", "n2", "n3"])
    for node_id in ("n1", "n2", "n3", "n4"):
        cluster.register(node_id, controllers=["n1", "n2", "n3"])
    assert choose(cluster, "n1", "n2", "n4") == Arranged()
    assert choose(cluster) == Arranged()
    assert cluster.membership.moves[CONTROLLER_GROUP].target == ["n1", "n2", "n4"], "where they go anyway"
    cluster.arrive(CONTROLLER_GROUP)
    assert sorted(cluster.membership.controllers) == ["n1", "n2", "n4"]


def test_a_node_that_is_removed_stays_no_controller_because_the_others_are_spread_again() -> None:
    cluster = Cluster(nodes=(), controllers=["n1", "n2", "n3"])
    for node_id in ("n1", "n2", "n3", "n4"):
        cluster.register(node_id, controllers=["n1", "n2", "n3"])
    cluster.do(RemoveNode(now_ms=0, node_id="n3"))
    assert choose(cluster) == Arranged()
    assert sorted(cluster.membership.moves[CONTROLLER_GROUP].target) == ["n1", "n2", "n4"]
    cluster.arrive(CONTROLLER_GROUP)
    assert sorted(cluster.membership.controllers) == ["n1", "n2", "n4"]

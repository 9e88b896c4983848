"""Topics: defined once, placed once, gone for good."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from stockade.cluster.controller.commands import (
    ChangeTopic,
    CreateTopic,
    RaiseFeatureLevel,
    Reassign,
    RegisterNode,
    RemoveNode,
    TopicCreated,
    TopicDeleted,
)
from stockade.cluster.controller.topology import catalog
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP, group_id, topic_partition
from stockade.cluster.features import FOLLOWING_FACTORS, LISTED_TARGETS, NEWEST_LEVEL
from stockade.cluster.leader import topic_service
from stockade.cluster.replica.replica_manager import ReplicaManager
from stockade.cluster.rpc import GroupStatus
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import (
    InconsistentTopicId,
    InvalidRequest,
    NotEnoughReplicas,
    StockadeError,
    ThrottlingQuotaExceeded,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

from ...driver import NODES, Driver

CREATE = CreateTopic(now_ms=0, name="t", partitions=2, replication_factor=3, config=TopicConfig(), nodes=NODES)


def create(**changes: object) -> CreateTopic:
    return msgspec.structs.replace(CREATE, **changes)


def test_a_new_topic_has_the_log_index_as_id_and_replicas_on_every_node() -> None:
    driver = Driver()
    driver.tick(0)
    assert driver.do(CREATE) == TopicCreated(topic_id=2, created=True)
    topic = driver.machine.catalog.topic("t")
    assert topic is driver.machine.catalog.by_id.get(2)
    assert topic is not None
    assert [sorted(replicas) for replicas in topic.placements] == [["n1", "n2", "n3"]] * 2
    assert topic.placements[0][0] != topic.placements[1][0], "the first replicas are balanced"
    assert (topic.epochs, topic.sealed) == ([0, 0], False)


@pytest.mark.parametrize(("nodes", "factor"), [(1, 1), (2, 1), (3, 3), (4, 3)])
def test_a_topic_has_three_replicas_unless_told_otherwise_and_one_below_three_nodes(nodes: int, factor: int) -> None:
    """As docs/openapi.yaml, the command line and `Client.create_topic` say."""
    driver = Driver()
    driver.do(create(replication_factor=None, nodes=[(f"n{n}", None) for n in range(nodes)]))
    topic = driver.machine.catalog.topic("t")
    assert topic is not None
    assert (topic.replication_factor, len(topic.placements[0])) == (factor, factor)


def test_the_same_definition_again_is_the_same_topic_even_with_defaults_left_out() -> None:
    driver = Driver()
    driver.do(CREATE)
    assert driver.do(CREATE) == TopicCreated(topic_id=1, created=False)
    assert driver.do(create(replication_factor=None)) == TopicCreated(topic_id=1, created=False)


def test_a_definition_is_compared_with_that_of_the_creation_and_not_with_later_changes() -> None:
    driver = Driver()
    driver.do(CREATE)
    driver.do(
        ChangeTopic(
            now_ms=1,
            name="t",
            topic_id=None,
            partitions=3,
            seal=False,
            config={"retention_ms": 60_000},
            nodes=NODES,
        )
    )
    topic = driver.machine.catalog.topic("t")
    assert topic is not None
    assert (topic.partitions, topic.config.retention_ms) == (3, 60_000)
    assert driver.do(CREATE) == TopicCreated(topic_id=1, created=False)
    changed = create(partitions=3, config=TopicConfig(retention_ms=60_000))
    assert driver.do(changed) == TopicAlreadyExists(topic_id=1)


def test_a_topic_of_before_its_first_definition_was_kept_is_compared_with_the_present_one() -> None:
    driver = Driver()
    driver.do(CREATE)
    topic = driver.machine.catalog.topic("t")
    assert topic is not None
    old = {name: value for name, value in msgspec.to_builtins(topic).items() if name != "created"}
    restored = catalog.Catalog()
    restored.load([msgspec.convert(old, catalog.Topic)])
    nodes = driver.machine.assignment.nodes
    assert restored.create(9, CREATE, nodes, NEWEST_LEVEL) == TopicCreated(topic_id=1, created=False)
    with pytest.raises(TopicAlreadyExists):
        restored.create(9, create(partitions=3), nodes, NEWEST_LEVEL)


def cluster_of(nodes: list[tuple[str, str | None]], level: int) -> Driver:
    driver = Driver(replicas=2)
    for node_id, zone in nodes:
        raft, url = f"{node_id}:2", f"http://{node_id}:1"
        driver.do(RegisterNode(now_ms=0, node_id=node_id, url=url, raft=raft, zone=zone, incarnation=1, controllers=[]))
    driver.do(RaiseFeatureLevel(now_ms=0, level=level, supporting=[node_id for node_id, _ in nodes]))
    return driver


def test_nothing_is_placed_on_a_node_that_was_removed_since_the_command_was_made() -> None:
    """Two administrators at once: the node had nothing on it, so it went in the same moment."""
    four = [*NODES, ("n4", None)]
    driver = cluster_of(four, LISTED_TARGETS)
    driver.do(RemoveNode(now_ms=0, node_id="n4"))
    assert "n4" not in driver.machine.assignment.nodes.rows
    driver.do(create(partitions=4, nodes=four))
    driver.do(ChangeTopic(now_ms=0, name="t", topic_id=None, partitions=8, seal=False, config={}, nodes=four))
    topic = driver.machine.catalog.topic("t")
    assert topic is not None
    assert [sorted(replicas) for replicas in topic.placements] == [["n1", "n2", "n3"]] * 8
    refused = driver.do(create(name="five", replication_factor=5, nodes=[*four, ("n5", None)]))
    assert isinstance(refused, NotEnoughReplicas)


@pytest.mark.parametrize("first", [0, 1])
def test_the_status_of_a_partition_is_that_of_its_leader(first: int) -> None:
    """It has applied what was answered, and a follower may not know yet that the slot is free."""
    told = [("n1", GroupStatus(5, "n1", 3, 7, None)), ("n2", GroupStatus(5, "n1", 3, 7, "Exclusive"))]
    assert topic_service._freshest([told[first], told[1 - first]])[5].slot_mode is None
    newer = GroupStatus(5, None, 4, 7, "Exclusive")
    assert topic_service._freshest([told[first], ("n3", newer), told[1 - first]])[5] is newer


@pytest.mark.parametrize(
    "changes",
    [{"partitions": 3}, {"replication_factor": 1}, {"config": TopicConfig(require_fence=True)}],
    ids=lambda changes: next(iter(changes)),
)
def test_another_definition_is_refused(changes: dict[str, object]) -> None:
    driver = Driver()
    driver.do(CREATE)
    assert driver.do(create(**changes)) == TopicAlreadyExists(topic_id=1)


@pytest.mark.parametrize("nodes", range(1, 8))
def test_without_a_replication_factor_it_is_three_or_what_an_odd_number_of_nodes_allows(nodes: int) -> None:
    driver = Driver()
    members = [(f"n{number}", None) for number in range(nodes)]
    driver.do(create(replication_factor=None, nodes=members))
    topic = driver.machine.catalog.topic("t")
    assert topic is not None
    assert topic.replication_factor == {1: 1, 2: 1}.get(nodes, 3)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"replication_factor": 2}, InvalidRequest),
        ({"replication_factor": 0}, InvalidRequest),
        ({"replication_factor": 9}, InvalidRequest),
        ({"replication_factor": 5}, NotEnoughReplicas),
        ({"replication_factor": None, "nodes": []}, NotEnoughReplicas),
        ({"partitions": 0}, InvalidRequest),
        ({"partitions": catalog.PARTITIONS_PER_TOPIC_MAX + 1}, InvalidRequest),
        ({"name": ""}, InvalidRequest),
        ({"name": ".."}, InvalidRequest),
        ({"name": "a/b"}, InvalidRequest),
        ({"name": "a\n"}, InvalidRequest),
        ({"name": "x" * 250}, InvalidRequest),
    ],
)
def test_a_definition_that_cannot_be_is_refused(changes: dict[str, object], refusal: type[StockadeError]) -> None:
    driver = Driver()
    assert type(driver.do(create(**changes))) is refusal
    assert driver.machine.catalog.topics() == []


@pytest.mark.parametrize("name", ["...", ".a", "x" * 249, "A-b_c.9"])
def test_unusual_names_within_the_rules_are_allowed(name: str) -> None:
    assert isinstance(Driver().do(create(name=name)), TopicCreated)


def test_topics_and_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "TOPICS_MAX", 2)
    monkeypatch.setattr(catalog, "PARTITIONS_MAX", 5)
    driver = Driver()
    throttled = ThrottlingQuotaExceeded(retry_after_ms=1000)
    driver.do(create(name="a"))
    assert driver.do(create(name="b", partitions=4)) == throttled
    assert isinstance(driver.do(create(name="b", partitions=3)), TopicCreated)
    driver.delete("b")
    driver.do(create(name="b", partitions=1))
    assert driver.do(create(name="c", partitions=1)) == throttled
    assert driver.do(create(name="a")) == TopicCreated(1, created=False), "asking again needs no room"


def test_topics_are_listed_by_name() -> None:
    driver = Driver()
    for name in ("b", "a", "c"):
        driver.topic(name)
    assert [topic.name for topic in driver.machine.catalog.topics()] == ["a", "b", "c"]


def test_a_deleted_topic_is_gone_and_its_successor_is_another() -> None:
    driver = Driver()
    old = driver.topic()
    assert driver.delete() == TopicDeleted(topic_id=old, partitions=2)
    assert driver.delete() == UnknownTopicOrPartition(topic="t", partition=None)
    new = driver.topic()
    assert new > old
    assert driver.delete(topic_id=old) == InconsistentTopicId(topic_id=new)
    assert driver.machine.catalog.by_id.get(old) is None
    assert driver.machine.catalog.by_id.get(new) is driver.machine.catalog.topic("t")
    assert driver.machine.assignment.replicas(group_id(old, 0)) is None
    assert driver.machine.assignment.replicas(group_id(new, 1)) == driver.machine.catalog.topics()[0].placements[1]
    assert driver.machine.assignment.replicas(group_id(new, 2)) is None


def test_group_ids_are_unique_and_tell_their_partition() -> None:
    pairs = [(topic_id, partition) for topic_id in (1, 2, 812, 1 << 40) for partition in (0, 1, 9_999, 65_535)]
    groups = [group_id(*pair) for pair in pairs]
    assert len({CONTROLLER_GROUP, *groups}) == len(pairs) + 1
    assert [topic_partition(group) for group in groups] == pairs


@pytest.mark.parametrize(
    "told, known",
    [
        ([("n1", 3)], ("n1", 3)),
        ([("n1", 3), (None, 3)], ("n1", 3)),
        ([(None, 3), ("n1", 3)], ("n1", 3)),
        ([("n1", 3), (None, 4)], (None, 4)),
        ([("n1", 3), (None, 4), ("n1", 3)], (None, 4)),
        ([("n1", 3), ("n2", 4), (None, 0)], ("n2", 4)),
    ],
)
def test_the_controller_leader_is_that_of_the_newest_term_and_a_report_without_a_leader_removes_none(
    tmp_path: Path, told: list[tuple[str | None, int]], known: tuple[str | None, int]
) -> None:
    replicas = ReplicaManager("n4", tmp_path, _never, _never, _never)
    for leader, term in told:
        replicas.heard_of_controller(leader, term)
    assert replicas.controller == known


def _never(*_: Any) -> Any:
    raise AssertionError("nothing is to be opened or closed")


def test_a_status_of_an_older_node_lacks_offsets_and_lags_and_an_older_node_reads_a_newer_one() -> None:
    """What protocol 6 knows of a group; msgspec leaves out what a reader does not know."""

    class OldStatus(msgspec.Struct, frozen=True):
        group_id: int
        leader: str | None
        term: int
        topic_epoch: int
        slot_mode: str | None
        config_order: int = -1

    old = msgspec.convert(msgspec.to_builtins(OldStatus(5, "n1", 3, 7, None)), GroupStatus)
    assert (old.log_start, old.log_end, old.lags) == (None, None, None)
    new = GroupStatus(5, "n1", 3, 7, None, log_start=1, log_end=9, lags={"n2": 4})
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(new), type=OldStatus)
    assert (read.group_id, read.topic_epoch) == (5, 7)


def test_new_partitions_get_as_many_replicas_as_all_older_ones_were_moved_to() -> None:
    """A topic of one replica that was moved to three went on giving one to each partition that was added."""
    driver = cluster_of(NODES, FOLLOWING_FACTORS)
    driver.do(create(replication_factor=1))
    topic = driver.machine.catalog.topic("t")
    assert topic is not None

    def moved(partition: int, *replicas: str) -> int:
        driver.do(Reassign(now_ms=0, topic="t", partition=partition, replicas=list(replicas)))
        return topic.replication_factor

    assert moved(1, "n1", "n2", "n3") == 1, "partition 0 is to have one"
    assert moved(0, "n1", "n2", "n3") == 3
    driver.do(ChangeTopic(now_ms=0, name="t", topic_id=None, partitions=3, seal=False, config={}, nodes=NODES))
    assert [len(replicas) for replicas in topic.placements] == [3, 3, 3]
    for retry in (1, None):
        assert driver.do(create(replication_factor=retry)) == TopicCreated(topic.topic_id, created=False)
    assert moved(2, "n1") == 3, "partitions 0 and 1 are to have three"


def test_a_topic_keeps_its_replication_factor_at_feature_level_1() -> None:
    driver = cluster_of(NODES, 1)
    driver.do(create(partitions=1))
    driver.do(Reassign(now_ms=0, topic="t", partition=0, replicas=["n1"]))
    topic = driver.machine.catalog.topic("t")
    assert topic is not None
    assert topic.replication_factor == 3

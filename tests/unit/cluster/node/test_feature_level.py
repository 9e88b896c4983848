"""An operator raises the feature level: refused while a member does not support it, and acted upon by every node once
its disk says so.
"""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from waiting import until

from stockade.cluster.config import NodeConfig
from stockade.cluster.controller.commands import (
    ChangeTopic,
    CreateTopic,
    DeleteTopic,
    RaiseFeatureLevel,
    RegisterNode,
    encode_command,
)
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.controller.topology.nodes import NodeEntry
from stockade.cluster.discovery import first_level
from stockade.cluster.discovery.bootstrap import Bootstrap
from stockade.cluster.discovery.cluster_view import ClusterView
from stockade.cluster.discovery.first_level import FirstLevel
from stockade.cluster.features import NEWEST_LEVEL, OLDEST_LEVEL, Features
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.leader.topic_service import GroupStatusReader, TopicService
from stockade.cluster.machines import Member
from stockade.cluster.node.node_service import NodeService
from stockade.cluster.rpc import Catalog, Standing
from stockade.partition.api.cluster import FeatureLevels
from stockade.partition.api.topics import OF_LEVEL_2, TopicConfig
from stockade.partition.errors import FeatureLevelTooLow, FeatureUpdateFailed, InvalidRequest, NotLeaderOrFollower
from stockade.partition.internal_names import LEDGER_TOPIC
from stockade.partition.version import VERSION
from stockade.raft.messages import Software

from ..fakes import FakeHost
from .test_node import run

OLD = Software("", 1, 1)
NEW = Software("9.9.9", 1, 3)


async def register(host: FakeHost, *node_ids: str) -> None:
    for node_id in node_ids:
        url, raft = f"http://{node_id}:1", f"{node_id}:2"
        command = RegisterNode(
            now_ms=0, node_id=node_id, url=url, raft=raft, zone=None, incarnation=1, controllers=["n1"]
        )
        await host.groups[CONTROLLER_GROUP].propose(encode_command(command), 1.0)


def test_the_level_is_raised_when_every_member_supports_it_and_the_node_acts_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        await register(host, "n2")
        host.softwares["n2"] = NEW
        members, features = service.at_controller().members, service.at_controller().control.features
        assert (service.cluster().feature_level, features.at_least(2)) == (1, False)
        await members.raise_feature_level(2)
        assert (host.level, service.cluster().feature_level, features.at_least(2)) == (2, 2, True)
        assert not features.at_least(3)
        await members.raise_feature_level(2)
        with pytest.raises(FeatureUpdateFailed, match="a level never goes down"):
            await members.raise_feature_level(1)

    run(tmp_path, monkeypatch, scenario)


def test_a_level_that_is_not_raised_leaves_no_command_at_which_older_software_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes were upgraded, and may go back: the operator asked for the level that they have, or while a topic has
    the name that the new level takes.
    """

    async def scenario(service: NodeService, host: FakeHost) -> None:
        controller = service.at_controller()
        proposed: list[Any] = []
        propose = controller.control.decide

        async def noted(command: Any, kind: Any) -> Any:
            proposed.append(command(0))
            return await propose(command, kind)

        monkeypatch.setattr(controller.control, "decide", noted)
        await controller.members.raise_feature_level(1)
        await host.groups[CONTROLLER_GROUP].propose(encode_command(_created(LEDGER_TOPIC)), 1.0)
        with pytest.raises(FeatureUpdateFailed, match=f"a topic has the name {LEDGER_TOPIC}"):
            await controller.members.raise_feature_level(2)
        assert proposed == []
        deleted = DeleteTopic(now_ms=0, name=LEDGER_TOPIC)
        await host.groups[CONTROLLER_GROUP].propose(encode_command(deleted), 1.0)
        await controller.members.raise_feature_level(2)
        assert [type(command) for command in proposed] == [RaiseFeatureLevel]

    run(tmp_path, monkeypatch, scenario)


def _created(name: str) -> CreateTopic:
    return CreateTopic(
        now_ms=0, name=name, partitions=1, replication_factor=1, config=TopicConfig(), nodes=[("n1", None)]
    )


def test_the_level_that_the_cluster_has_is_raised_again_while_a_node_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that lost the answer asks again, and a node is being restarted meanwhile."""

    async def scenario(service: NodeService, host: FakeHost) -> None:
        await register(host, "n2")
        host.softwares["n2"] = NEW
        members = service.at_controller().members
        await members.raise_feature_level(2)
        del host.softwares["n2"]
        await members.raise_feature_level(2)
        assert service.cluster().feature_level == 2

    run(tmp_path, monkeypatch, scenario)


def test_a_command_of_level_1_names_no_field_for_which_older_replicas_refuse_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that sends a topic's whole configuration back: new replicas would do what old ones refuse."""
    proposed: list[ChangeTopic] = []

    async def scenario(service: NodeService, host: FakeHost) -> None:
        control = service.at_controller().control
        propose = control.decide

        async def noted(command: Any, kind: Any) -> Any:
            made = command(0)
            proposed.extend([made] if isinstance(made, ChangeTopic) else [])
            return await propose(command, kind)

        monkeypatch.setattr(control, "decide", noted)
        config = dict.fromkeys(OF_LEVEL_2, -1) | {"retention_ms": 3_600_000}
        for level in (1, 2):
            host.level = level
            topics = service.at_controller().topics
            changed = await topics.change_topic("t", None, partitions=None, seal=False, config=config)
            assert changed.config.retention_ms == 3_600_000
        assert [sorted(command.config) for command in proposed] == [["retention_ms"], sorted(config)]

    run(tmp_path, monkeypatch, scenario)


def test_a_topic_whose_groups_older_nodes_have_no_frames_for_waits_for_the_level_that_brought_them() -> None:
    async def scenario() -> None:
        machine = SimpleNamespace(applied_index=(1 << 16) - 5_000)
        reached: list[int] = []

        async def decide(*_: object) -> Any:
            reached.append(machine.applied_index)
            raise NotLeaderOrFollower(leader=None, leader_term=None)

        machine.catalog = SimpleNamespace(topic=lambda name: None)
        control = SimpleNamespace(
            features=Features(level=1),
            machine=machine,
            decide=decide,
            eligible=[],
            nodes_for=lambda factor: [],
            barrier=partial(asyncio.sleep, 0),
        )
        topics = TopicService(cast(ControllerGroup, control), cast(GroupStatusReader, None), 0)
        for index, level, refusal in (
            ((1 << 16) - 5_000, 1, NotLeaderOrFollower),
            ((1 << 16) - 4_096, 1, FeatureLevelTooLow),
            (1 << 20, 1, FeatureLevelTooLow),
            (1 << 20, 2, NotLeaderOrFollower),
        ):
            machine.applied_index, control.features = index, Features(level=level)
            with pytest.raises(refusal):
                await topics.create_topic("late", 1, 1, TopicConfig())
        assert reached == [(1 << 16) - 5_000, 1 << 20]

    asyncio.run(scenario())


def test_a_local_retention_and_a_quota_wait_for_the_level_that_brought_them() -> None:
    async def scenario() -> None:
        control = SimpleNamespace(features=Features(level=1))
        topics = TopicService(cast(ControllerGroup, control), cast(GroupStatusReader, None), 0)
        with pytest.raises(FeatureLevelTooLow):
            await topics.create_topic("tiered", 1, 1, TopicConfig(local_retention_bytes=0))
        for name in OF_LEVEL_2:
            with pytest.raises(FeatureLevelTooLow):
                await topics.change_topic("tiered", None, partitions=None, seal=False, config={name: 0})
            topics._check_level({name: -1})
        control.features = Features(level=2)
        topics._check_level({"local_retention_ms": 0})

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("software", "why"),
    [
        (None, "n2: it is away"),
        (OLD, r"n2: its software \(unknown\) supports level 1 at most"),
        (Software("0.1.7", 1, 1), r"n2: its software \(0.1.7\) supports level 1 at most"),
    ],
)
def test_the_level_is_not_raised_while_a_member_does_not_support_it_or_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, software: Software | None, why: str
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        await register(host, "n2", "n3")
        host.softwares["n3"] = NEW
        if software is not None:
            host.softwares["n2"] = software
        with pytest.raises(FeatureUpdateFailed, match=why) as refused:
            await service.at_controller().members.raise_feature_level(2)
        assert refused.value.fields == {"nodes": ["n2"], "feature_level": 1}
        assert (host.level, service.cluster().feature_level) == (1, 1)

    run(tmp_path, monkeypatch, scenario)


def test_a_new_cluster_begins_with_the_newest_level_that_its_members_support(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        await until(lambda: service.cluster().feature_level == NEWEST_LEVEL)
        assert host.level == NEWEST_LEVEL

    run(tmp_path, monkeypatch, scenario, first_level.PATIENCE_S)


@pytest.mark.parametrize(("come", "software"), [([], None), (["n2"], None), (["n2"], OLD)])
def test_a_new_cluster_begins_with_level_1_unless_all_configured_members_have_come_and_support_more(
    tmp_path: Path, come: list[str], software: Software | None
) -> None:
    async def main() -> None:
        view = ClusterView(NodeConfig("n1", "c", str(tmp_path), "h:1", "h:2", [Member("n1", "http://h:1", "h:2")]))
        first = FirstLevel(["n1", "n2"], view, {"n1": NEW, "n2": software}.get, cast(Any, None))
        nodes = [NodeEntry(node_id, "http://h:1", "h:2", None, 7) for node_id in ("n1", *come)]
        await view.follow(Catalog(1, [], None, 1, nodes))
        assert first._all_have_come() is None

    asyncio.run(main())


def test_only_the_node_that_founds_a_cluster_asks_for_its_level(tmp_path: Path) -> None:
    async def main() -> None:
        asked: list[str] = []
        for name, founded in (("n2", Standing("founded", 5, {"n1": 5})), ("n1", Standing("new", 5))):
            bootstrap = Bootstrap(name, 7, tmp_path / name, partial(_answer, founded), is_member=lambda: False)
            bootstrap.on_founded = partial(asked.append, name)
            await bootstrap.settle(["n1", "n2"], ["n1", "n2"])
        assert asked == ["n1"]

    asyncio.run(main())


async def _answer(standing: Standing, node_id: str) -> Standing:
    return standing


def test_a_level_that_this_software_does_not_know_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        with pytest.raises(InvalidRequest, match=f"the newest that this node's software .* supports is {NEWEST_LEVEL}"):
            await service.at_controller().members.raise_feature_level(NEWEST_LEVEL + 1)

    run(tmp_path, monkeypatch, scenario)


def test_a_controller_of_older_software_is_not_asked_to_raise_the_feature_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        members = service.at_controller().members
        host.groups[CONTROLLER_GROUP].leading = False  # "other" leads
        host.softwares["other"] = OLD
        with pytest.raises(FeatureUpdateFailed, match="other: its software"):
            await members.raise_feature_level(2)
        host.softwares["other"] = NEW
        with pytest.raises(NotLeaderOrFollower):
            await members.raise_feature_level(2)

    run(tmp_path, monkeypatch, scenario)


def test_the_cluster_tells_version_and_feature_levels_of_each_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, host: FakeHost) -> None:
        assert host.software == Software(VERSION, OLDEST_LEVEL, NEWEST_LEVEL)
        [node] = service.cluster().nodes
        assert (node.version, node.feature_levels) == (VERSION, FeatureLevels(OLDEST_LEVEL, NEWEST_LEVEL))

    run(tmp_path, monkeypatch, scenario)


def test_without_a_host_the_level_is_fixed() -> None:
    assert Features(level=2).at_least(2)
    assert not Features(level=2).at_least(3)

"""Where the replicas of a new topic go while the nodes of a new cluster join one after the other."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from stockade.cluster.access.store import PrincipalStore
from stockade.cluster.controller.commands import Arranged, RegisterNode
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.features import Features
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.leader.topic_service import GroupStatusReader, TopicService
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import NotEnoughReplicas
from stockade.raft.core.group import Group

from ..fakes import FakeGroup


def leader() -> ControllerGroup:
    return ControllerGroup(
        lambda machine: cast(Group, FakeGroup(CONTROLLER_GROUP, {"n1": 1}, machine)),
        Features(),
        {},
        60.0,
        PrincipalStore(Path("nowhere")),
        lambda node_id: True,
    )


async def join(control: ControllerGroup, node_id: str, controllers: list[str]) -> None:
    await control.decide(
        lambda now: RegisterNode(
            now_ms=now, node_id=node_id, url="", raft="", zone=None, incarnation=1, controllers=controllers
        ),
        Arranged,
    )


def test_a_topic_of_a_new_cluster_never_has_one_replica_because_its_creator_came_before_the_other_nodes() -> None:
    """It had one for good, and nothing said so, when one or two of three nodes had joined."""

    async def scenario() -> None:
        control = leader()
        topics = TopicService(control, cast(GroupStatusReader, None), 0)
        for node_id, awaited in (("n2", "n1, n3"), ("n1", "n3")):
            await join(control, node_id, ["n1", "n2", "n3"])
            with pytest.raises(NotEnoughReplicas, match=f"not joined yet: {awaited}\n"):
                await topics.create_topic("t", 1, None, TopicConfig())
            assert control.machine.catalog.topic("t") is None
            assert len(control.nodes_for(1)) >= 1, "one replica can be asked for"
        await join(control, "n3", ["n1", "n2", "n3"])
        assert control.default_factor() == 3

    asyncio.run(scenario())


def test_nodes_that_joined_later_stand_in_for_a_founder_that_never_came() -> None:
    async def scenario() -> None:
        control = leader()
        for node_id in ("n1", "n2", "n4"):
            await join(control, node_id, ["n1", "n2", "n3"])
        assert control.default_factor() == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("founders", [["n1"], ["n1", "n2"]])
def test_a_cluster_of_fewer_than_three_nodes_has_topics_of_one_replica(founders: list[str]) -> None:
    async def scenario() -> None:
        control = leader()
        await join(control, "n1", founders)
        assert control.default_factor() == 1

    asyncio.run(scenario())

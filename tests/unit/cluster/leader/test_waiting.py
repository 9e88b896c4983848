"""The leader waits for what partitions commit, and asks nodes about them, in one look at each; and makes one answer for
all nodes that ask the same.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from stockade.cluster import rpc
from stockade.cluster.access.store import PrincipalStore
from stockade.cluster.controller.commands import RegisterNode, encode_command
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.replica.replica_manager import by_node
from stockade.partition.errors import RequestTimedOut
from stockade.raft.core.group import Group

from ..fakes import FakeGroup


def control(timeout_s: float) -> ControllerGroup:
    def group_of(machine: ControllerMachine) -> Group:
        return cast(Group, FakeGroup(CONTROLLER_GROUP, {"n1": 1}, machine))

    return ControllerGroup(group_of, {}, timeout_s, PrincipalStore(Path("nowhere")))


def test_what_was_committed_is_not_looked_at_again() -> None:
    count, looks = 300, 0
    done: set[int] = set()

    def is_done(number: int) -> bool:
        nonlocal looks
        looks += 1
        return number in done

    async def commit_one_after_the_other() -> None:
        group = control(60.0)
        waiting = asyncio.create_task(group.until_all([partial(is_done, number) for number in range(count)], "late"))
        for number in reversed(range(count)):
            await asyncio.sleep(0)
            done.add(number)
            group.changed.notify()
        await waiting

    asyncio.run(commit_one_after_the_other())
    assert looks <= 3 * count


def test_what_is_not_committed_in_time_is_an_unknown_outcome() -> None:
    conditions: list[Callable[[], bool]] = [lambda: True, lambda: False, lambda: True]
    with pytest.raises(RequestTimedOut, match="late"):
        asyncio.run(control(0.0).until_all(conditions, "late"))


def test_each_node_is_asked_about_what_it_holds() -> None:
    assert by_node([(1, ["a", "b"]), (2, ["b"]), (3, [])]) == {"a": [1], "b": [1, 2]}


def test_the_catalog_is_encoded_once_for_all_nodes_that_ask() -> None:
    group = control(1.0)

    def register(index: int, node_id: str) -> None:
        command = RegisterNode(
            now_ms=0, node_id=node_id, url="http://a:1", raft="a:2", zone=None, incarnation=1, controllers=["n1"]
        )
        group.machine.apply(index, 1, encode_command(command))

    register(1, "n1")
    first = group.encoded_news(0, 0)
    assert group.encoded_news(0, 0) is first
    register(2, "n2")
    catalog = rpc.decode(group.encoded_news(0, 0))
    assert catalog == group.catalog()
    assert isinstance(catalog, rpc.Catalog)
    assert [entry.node_id for entry in catalog.nodes] == ["n1", "n2"]

"""The leader waits for what partitions commit, and asks nodes about them, in one look at each; and makes one answer for
all nodes that ask the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from stockade.cluster import rpc
from stockade.cluster.access.store import PrincipalStore
from stockade.cluster.controller.commands import (
    ProducerFence,
    ProducerState,
    ReaderRef,
    RegisterNode,
    encode_command,
)
from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.controller.ownership.reader_fences import ReaderFence
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.features import Features
from stockade.cluster.groups import Router
from stockade.cluster.leader.controller_group import ControllerGroup
from stockade.cluster.leader.producer_service import ProducerService, ProducerStatusReader
from stockade.cluster.leader.session_service import RenewalBatcher
from stockade.cluster.leader.topic_service import GroupStatusReader
from stockade.cluster.model import NO_PRINCIPAL
from stockade.cluster.replica.replica_manager import ReplicaManager, by_node
from stockade.partition.errors import RequestTimedOut
from stockade.raft.core.group import Group

from ..fakes import FakeGroup


def control(timeout_s: float, principals: PrincipalStore | None = None) -> ControllerGroup:
    def group_of(machine: ControllerMachine) -> Group:
        return cast(Group, FakeGroup(CONTROLLER_GROUP, {"n1": 1}, machine))

    principals = principals or PrincipalStore(Path("nowhere"))
    return ControllerGroup(group_of, Features(), {}, timeout_s, principals, lambda node_id: True)


def test_a_replica_that_catches_up_tells_no_principals() -> None:
    """A checkpoint from before the first principal said that there were none."""
    principals = PrincipalStore(Path("nowhere"), is_member=False)
    machine = control(60.0, principals).machine
    machine.restore(None, ControllerMachine().capture().state, [])
    assert not principals.has_heard
    principals.take(machine.principals.table())  # of a replica that is ready
    assert principals.has_heard


def test_a_condition_that_held_is_not_evaluated_again() -> None:
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


def test_an_install_that_is_not_committed_in_time_is_an_unknown_outcome() -> None:
    conditions: list[Callable[[], bool]] = [lambda: True, lambda: False, lambda: True]
    with pytest.raises(RequestTimedOut, match="late"):
        asyncio.run(control(0.0).until_all(conditions, "late"))


@pytest.mark.parametrize("is_away", [True, False])
def test_a_change_waits_for_a_node_that_has_just_started_and_acts_by_old_principals(
    monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """It counted as away, as it knew no catalog yet: a deleted token was told to be gone, and the node admitted it."""
    asked: list[str] = []

    class Nodes:
        async def ask(self, node_id: str, question: rpc.DescribeGroup, timeout_s: float) -> rpc.Status:
            asked.append(node_id)
            if is_away:
                raise ConnectionError
            return rpc.Status(0, [], principals_index=6 + len(asked))

    monkeypatch.setattr("stockade.cluster.leader.topic_service.ASK_AGAIN_S", 0.0)
    statuses = GroupStatusReader(
        "n1", cast(Router, Nodes()), cast(ReplicaManager, None), {}, PrincipalStore(Path("nowhere"))
    )
    assert asyncio.run(statuses.until_all(["n2"], lambda each: each.principals_index >= 9, 60.0))
    assert len(asked) == (1 if is_away else 3)


async def restored_meanwhile(group: ControllerGroup, state: bytes, waiting: Awaitable[object]) -> None:
    """What waits sees that a checkpoint, which came to this node when it led no more, has what it waits for."""
    waiter = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    assert not waiter.done()
    group.machine.restore(None, state, [])
    await waiter


def test_a_checkpoint_that_tells_of_an_install_ends_the_wait_for_it() -> None:
    group = control(1.0)
    state, machine = group.machine.capture().state, group.machine
    machine.reader_fences.owe(1 << 16, "g", ReaderFence(1, owned=True))
    asyncio.run(restored_meanwhile(group, state, group.installed([], [ReaderRef(1 << 16, "g", 1)])))


def test_a_checkpoint_that_tells_of_a_producers_epoch_ends_the_wait_for_it() -> None:
    group = control(1.0)
    state, machine = group.machine.capture().state, group.machine
    machine.registry.enrolments.owed[1 << 16] = {7: 1}
    fenced = ProducerState(7, 1, "p", [ProducerFence(7, 1, 1 << 16)])
    producers = ProducerService(group, cast(ProducerStatusReader, None))
    asyncio.run(restored_meanwhile(group, state, producers._when_installed(fenced)))


def test_renewals_of_one_window_share_a_proof_and_each_hears_of_any_failure_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, rounds = control(1.0), list[str]()

    async def fail() -> None:
        rounds.append("one")
        raise RuntimeError("a fault of the engine")

    async def scenario() -> list[object]:
        await group._keep_leases(group.group.term)
        renewals = RenewalBatcher(group)
        monkeypatch.setattr(group, "barrier", fail)
        cancelled, *others = (asyncio.create_task(renewals.renew("s", NO_PRINCIPAL)) for _ in range(3))
        await asyncio.sleep(0)
        cancelled.cancel()
        return list(await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 20))

    assert [str(outcome) for outcome in asyncio.run(scenario())] == ["a fault of the engine"] * 2
    assert rounds == ["one"]


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

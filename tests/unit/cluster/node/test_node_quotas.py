"""How many sessions, topics, groups and names of producers a principal may have, counted by the controller."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stockade.cluster.controller.machine import ControllerMachine
from stockade.cluster.model import By, Claim
from stockade.cluster.node.node_service import NodeService
from stockade.partition.api.topics import TopicConfig
from stockade.partition.errors import ThrottlingQuotaExceeded

from ..fakes import FakeHost
from .test_node import run

Make = Callable[[NodeService, str, By], Awaitable[Any]]


async def session(service: NodeService, name: str, by: By) -> Any:
    return (await service.at_controller().sessions.open_session(name, 10_000, by)).session


async def topic(service: NodeService, name: str, by: By) -> Any:
    return await service.at_controller().topics.create_topic(name, 1, None, TopicConfig(), by)


async def producer(service: NodeService, name: str, by: By) -> Any:
    return await service.at_controller().producers.init_producer(name, None, None, by)


async def group(service: NodeService, name: str, by: By) -> Any:
    owner = (await service.at_controller().sessions.open_session("c", 10_000, By(by.principal))).session
    claims = [Claim("r", 0)]
    resources = service.at_controller().resources
    return await resources.own(name, owner, claims, atomic=True, sever="session", by=by)


@pytest.mark.parametrize(
    ("make", "what"),
    [(session, "sessions"), (topic, "topics"), (producer, "names of producers"), (group, "groups")],
)
def test_a_principal_has_as_many_as_its_quota_and_others_are_not_in_its_way(
    make: Make, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, _: FakeHost) -> None:
        for name in ("a", "b"):
            await make(service, name, By("p", most=2))
        for _turn in range(2):
            with pytest.raises(ThrottlingQuotaExceeded, match=f"principal p may have 2 {what}, and has 2"):
                await make(service, "c", By("p", most=2))
        await make(service, "d", By("q", most=2))
        await make(service, "e", By())
        if make is not session:  # what is there already is no new one
            await make(service, "a", By("p", evicts=True, most=2))
        await make(service, "f", By("p", most=3))
        control = service.at_controller().control
        restored = ControllerMachine()
        restored.restore(None, control.machine.capture().state, [])
        assert restored.capture().state == control.machine.capture().state
        for machine in (restored, control.machine):  # counted anew, or one by one
            counts = (machine.sessions._counts, machine.registry._counts, machine.resources._groups)
            assert sum(count["p"] for count in counts) >= (0 if make is topic else 3)
            assert counts == (
                control.machine.sessions._counts,
                control.machine.registry._counts,
                control.machine.resources._groups,
            )
        with pytest.raises(ThrottlingQuotaExceeded):
            await make(service, "g", By("p", most=3))

    run(tmp_path, monkeypatch, scenario)


def test_a_closed_session_and_a_deleted_topic_make_room_in_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: NodeService, _: FakeHost) -> None:
        by = By("p", most=1)
        opened = await session(service, "a", by)
        await service.at_controller().sessions.close_session(opened, by)
        await session(service, "b", by)
        await topic(service, "u", by)
        await service.at_controller().topics.delete_topic("u", None)
        await topic(service, "v", by)

    run(tmp_path, monkeypatch, scenario)


def test_a_name_that_is_taken_over_counts_for_the_taker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(service: NodeService, _: FakeHost) -> None:
        await producer(service, "a", By("p", most=1))
        await producer(service, "mine", By("q", most=1))
        with pytest.raises(ThrottlingQuotaExceeded):
            await producer(service, "a", By("q", evicts=True, most=1))
        await producer(service, "a", By("q", evicts=True, most=2))
        await producer(service, "b", By("p", most=1))

    run(tmp_path, monkeypatch, scenario)

"""A node that holds a replica of the controller group no more: what is left of it on disk."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.raft.cluster import FAST, MemoryMachine
from waiting import until

from stockade.cli.local_cluster.ports import free_ports
from stockade.cluster.controller.topology.catalog import CONTROLLER_GROUP
from stockade.cluster.discovery.bootstrap import Bootstrap
from stockade.cluster.node.controller_member import ControllerMember
from stockade.raft.host import RaftHost


class Start:
    """The start of n1 on a disk with a replica of the controller group; by its catalog it is no controller."""

    def __init__(self, data: Path, index: int, host: Any, incarnation: int) -> None:
        self.looks: list[Callable[[], Any]] = []
        """What it waits for, once it has done what there was to do."""
        self.view = SimpleNamespace(is_controller=False, index=index, changed=SimpleNamespace(until=self._until))
        founders = data / "founders.json"
        self.bootstrap = Bootstrap("n1", incarnation, founders, self._ask, is_member=lambda: index > 0)
        rest: Any = None
        self.member = ControllerMember(
            self.view,  # type: ignore[arg-type]
            self.bootstrap,
            host,
            rest,
            rest,
            lambda group: None,
            rest,
            rest,
        )

    async def _until(self, look: Callable[[], Any], timeout_s: float) -> None:
        self.looks.append(look)
        await asyncio.Event().wait()

    async def _ask(self, node_id: str) -> None:
        raise AssertionError("no other node is asked")


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[RaftHost]:
    address = ("127.0.0.1", free_ports(1)[0])
    host = RaftHost("n1", "house", address, {"n1": address}, data, FAST, lambda error: None)
    await host.start()
    try:
        yield host
    finally:
        await host.stop()


@pytest.mark.parametrize("is_founder", [True, False])
def test_a_node_that_died_while_it_left_the_controller_group_erases_its_replica_at_the_next_start(
    tmp_path: Path, is_founder: bool
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as host:
            group = host.open_group(CONTROLLER_GROUP, {"n1": host.incarnation}, MemoryMachine())
            await until(lambda: group.is_leader)
            await group.propose(b"kept", 10.0)
            founders = {"n1": host.incarnation} if is_founder else {}  # it died a step later
            await Start(tmp_path, 0, host, host.incarnation).bootstrap.keep(founders)
        async with running(tmp_path) as host:
            start = Start(tmp_path, 50, host, host.incarnation)
            assert host.log.recovered[CONTROLLER_GROUP].entries
            following = asyncio.create_task(start.member.run(["n1"]))
            await until(lambda: bool(start.looks))
            following.cancel()
            await asyncio.wait([following])
            assert start.bootstrap.founders() == {}
        async with running(tmp_path) as host:
            left = host.log.recovered.get(CONTROLLER_GROUP)
            assert left is None or not left.entries

    asyncio.run(scenario())


def test_a_node_that_has_met_no_controller_yet_erases_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        start = Start(tmp_path, 0, None, 7)
        await start.member._erase()
        assert start.bootstrap.standing().state == "new"

    asyncio.run(scenario())


def test_a_node_that_was_never_a_controller_writes_no_founders_at_its_start(tmp_path: Path) -> None:
    async def erase_group(group_id: int) -> None:
        assert group_id == CONTROLLER_GROUP

    async def scenario() -> None:
        start = Start(tmp_path, 50, SimpleNamespace(erase_group=erase_group), 7)
        await start.member._erase()
        assert not (tmp_path / "founders.json").exists()

    asyncio.run(scenario())

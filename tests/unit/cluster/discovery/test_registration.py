"""Two processes with one node id: the later one stops, the earlier one says what it sees and stays registered."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from stockade.cluster.condition import Condition
from stockade.cluster.controller.commands import RegisterNode
from stockade.cluster.controller.topology.nodes import NodeEntry
from stockade.cluster.discovery import registration
from stockade.cluster.discovery.cluster_view import ClusterView
from stockade.cluster.discovery.registration import Registration
from stockade.cluster.groups import Router
from stockade.partition.errors import LeaderNotAvailable
from stockade.raft.wal.errors import DiskRefused

EARLIER = NodeEntry("n3", "http://h3:1", "h3:2", None, 7)
LATER = NodeEntry("n3", "http://h4:1", "h4:2", None, 8)


class Controller:
    """Both the view and the router of each process: a registration is in the catalog at once."""

    def __init__(self) -> None:
        self.changed, self.controllers = Condition(), ["n1"]
        self.known: NodeEntry | None = None
        self.registered: list[str] = []
        self.index = 0

    def find(self, _: str) -> NodeEntry | None:
        return self.known

    def take(self, entry: NodeEntry | None) -> None:
        self.known = entry
        self.changed.notify()

    async def decide(self, _: object, command: RegisterNode, __: float) -> object:
        self.registered.append(command.url)
        self.take(NodeEntry(command.node_id, command.url, command.raft, command.zone, command.incarnation))
        return SimpleNamespace()

    def process(self, entry: NodeEntry) -> Registration:
        both: Any = self
        return Registration(entry, ["n1"], cast(ClusterView, both), cast(Router, both), Path("data"))

    async def has(self, entry: NodeEntry) -> None:
        assert await self.changed.until(lambda: True if self.known == entry else None, 5.0)


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PAUSE_REPLACED_S", 0.1)


def test_the_later_of_two_processes_with_one_id_stops(caplog: pytest.LogCaptureFixture) -> None:
    """They took turns at registering, for ever, and no line of either log said so."""

    async def run() -> None:
        controller = Controller()
        controller.take(EARLIER)  # which is in the catalog that the earlier one has on its disk
        earlier = asyncio.create_task(controller.process(EARLIER).run())
        with pytest.raises(DiskRefused, match=r"another process runs as n3, at http://h3:1 .* node_id of its own"):
            await asyncio.wait_for(controller.process(LATER).run(), 20)
        await controller.has(EARLIER)
        earlier.cancel()
        assert controller.registered == [LATER.url, EARLIER.url]

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == [
        "another process runs as n3, at http://h4:1 (h4:2), with another disk, or `stockade cluster add` named that"
        " address; this node registers again"
    ]


def test_a_process_that_ran_for_a_while_is_the_earlier_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "SETTLED_S", 0.0)

    async def run() -> None:
        controller = Controller()
        task = asyncio.create_task(controller.process(EARLIER).run())
        await controller.has(EARLIER)
        await asyncio.wait([task], timeout=0.05)
        controller.take(LATER)
        await controller.has(EARLIER)
        assert not task.done()
        task.cancel()

    asyncio.run(run())


def test_a_process_tells_of_another_one_until_it_was_not_seen_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "SETTLED_S", 0.0)

    async def run() -> None:
        controller = Controller()
        process = controller.process(EARLIER)
        task = asyncio.create_task(process.run())
        await controller.has(EARLIER)
        assert process.double is None
        controller.take(LATER)
        await controller.has(EARLIER)
        assert process.double == LATER.url
        monkeypatch.setattr(registration, "DOUBLE_S", 0.0)
        assert process.double is None
        task.cancel()

    asyncio.run(run())


def test_an_entry_of_an_operator_is_not_taken_for_another_process(caplog: pytest.LogCaptureFixture) -> None:
    """A node that was removed and added again has no disk in the catalog; one that is added again keeps its disk."""

    async def run() -> None:
        controller = Controller()
        task = asyncio.create_task(controller.process(EARLIER).run())
        for said in (
            None,
            msgspec.structs.replace(LATER, incarnation=None),
            msgspec.structs.replace(LATER, incarnation=7),
        ):
            await controller.has(EARLIER)
            await asyncio.wait([task], timeout=0.05)
            controller.take(said)
        await controller.has(EARLIER)
        assert not task.done()
        task.cancel()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert len(caplog.records) == 1, "only a disk that was registered elsewhere may be another process"


def test_a_node_with_a_new_disk_replaces_the_one_that_is_gone() -> None:
    async def run() -> None:
        controller = Controller()
        controller.take(EARLIER)
        task = asyncio.create_task(controller.process(LATER).run())
        await controller.has(LATER)
        assert not task.done()
        task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("index", [0, 9])
def test_a_node_that_no_node_reaches_at_its_new_address_says_what_makes_it_known(
    index: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only nodes with larger ids dial it, at the address that they know: it waited for good, for a leader that was
    there. In a cluster that is not founded yet it waits for the others.
    """
    moved = msgspec.structs.replace(EARLIER, url="http://h9:1", raft="h9:2", zone="b")

    async def run() -> None:
        controller = Controller()
        controller.take(EARLIER if index else None)
        controller.index = index
        asked = asyncio.Event()

        async def decide(*_: object) -> object:
            asked.set()
            raise LeaderNotAvailable("group 0 has no leader")

        monkeypatch.setattr(controller, "decide", decide)
        task = asyncio.create_task(controller.process(moved).run())
        await asked.wait()
        await asyncio.wait([task], timeout=0.05)
        task.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("this node is not registered yet: ")
    assert line.endswith("`stockade cluster add n3 http://h9:1 h9:2 --zone b`") == bool(index)

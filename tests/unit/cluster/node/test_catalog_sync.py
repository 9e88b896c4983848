"""Where a node learns the catalog."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stockade.cluster.config import NodeConfig
from stockade.cluster.controller.topology.nodes import NodeEntry
from stockade.cluster.discovery.cluster_view import ClusterView
from stockade.cluster.machines import Member
from stockade.cluster.node import catalog_sync
from stockade.cluster.node.catalog_sync import CatalogSync
from stockade.cluster.rpc import Catalog, FollowCatalog, NotLeading

NODES = [NodeEntry(f"n{number}", f"http://h{number}:1", f"h{number}:2", None, 7) for number in range(1, 7)]
BEFORE = Catalog(9, [], "n1", 1, NODES, [], ["n1", "n2", "n3"], [])
NOW = Catalog(20, [], "n5", 4, NODES, [], ["n4", "n5"], [])


async def nothing(*_: object) -> None: ...


class Others:
    """The other nodes: the controllers of ``NOW`` answer with the catalog, the rest as ``former`` says."""

    def __init__(self, former: NotLeading | None) -> None:
        self.former = former
        self.asked: list[str] = []

    async def ask(self, node_id: str, message: FollowCatalog, timeout_s: float) -> Catalog | NotLeading:
        await asyncio.sleep(0)
        self.asked.append(node_id)
        if node_id in NOW.controllers:
            return NOW
        if self.former is None:
            raise ConnectionError
        return self.former


async def caught_up(node_id: str, data: Path, others: Others, control: Any) -> ClusterView:
    """The view of a node that was away since ``BEFORE``, once it has the catalog of now."""
    members = [Member(node_id, f"http://{node_id}:1", f"{node_id}:2")]
    view = ClusterView(NodeConfig(node_id, "c", str(data), "127.0.0.1:1", "127.0.0.1:2", members))
    await view.follow(BEFORE)
    replicas = SimpleNamespace(index=9, heard_of_controller=lambda *_: None, follow=nothing)
    principals = SimpleNamespace(written_index=0, write=nothing)
    member = SimpleNamespace(control=control)
    parts = (member, others, view, replicas, principals, nothing)
    sync = asyncio.create_task(CatalogSync(node_id, *cast(Any, parts)).run())
    try:
        assert await view.changed.until(lambda: view.index == NOW.index or None, 5) is not None, others.asked
    finally:
        sync.cancel()
    return view


@pytest.mark.parametrize("former", [NotLeading(None), None], ids=["members still", "gone"])
def test_a_node_that_was_away_while_all_controllers_were_replaced_finds_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: NotLeading | None
) -> None:
    """It asked those that it knew, for good, and never came back."""
    monkeypatch.setattr(catalog_sync, "PAUSE_S", 0.0)
    others = Others(former)
    view = asyncio.run(caught_up("n6", tmp_path, others, None))
    assert view.controllers == ["n4", "n5"]
    assert set(others.asked[:3]) == {"n1", "n2", "n3"}, "first those that it knows"


def test_a_former_controller_that_was_away_finds_the_new_controllers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replica hears from no other one."""
    monkeypatch.setattr(catalog_sync, "PAUSE_S", 0.0)
    control = SimpleNamespace(group=SimpleNamespace(ready=False, leader=None), changed=SimpleNamespace(until=nothing))
    assert asyncio.run(caught_up("n1", tmp_path, Others(NotLeading(None)), control)).controllers == ["n4", "n5"]

"""Sessions of a client of this release while its cluster is upgraded from the release before, which knows no route
without their ids in it.
"""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from stockade.cli.local_cluster.cluster import LocalCluster, LocalNode
from stockade.client.api.client import Client
from stockade.client.config import ClientConfig
from stockade.client.session.session import Session
from stockade.partition.errors import StockadeError, UnknownSession

from .api import eventually
from .releases import prefix, previous_release

TTL_MS = 30_000


@pytest.mark.timeout(300)
def test_sessions_are_renewed_and_ended_through_nodes_of_both_releases(tmp_path: Path) -> None:
    old = previous_release(tmp_path / "previous")
    releases: dict[str, Path | None] = dict.fromkeys(("n1", "n2", "n3"), old)
    local = LocalCluster(tmp_path / "data", port_base=0, restart=False, prefix=lambda name: prefix(releases[name]))
    with local:
        kept = asyncio.run(renewed_everywhere(local.nodes))
        for node in local.nodes[1:]:
            releases[node.name] = None
            restart(local, node)
        for leader in ("n1", "n2"):
            kept = asyncio.run(renewed_everywhere(local.nodes, leader, kept))
        asyncio.run(ended(local.nodes, kept))
        for node in local.nodes:
            assert kept not in (node.data / "node.log").read_text(encoding="utf-8")


def restart(local: LocalCluster, node: LocalNode) -> None:
    local.kill(node, signal.SIGTERM)
    eventually(lambda: node.process is None or node.process.poll() is not None)
    local.start_node(node)
    local.wait_ready()


async def renewed_everywhere(nodes: list[LocalNode], leader: str | None = None, kept: str | None = None) -> str:
    """A session that was renewed through each node, while ``leader`` leads the controller; each has ended another."""
    for node in nodes:
        async with Client(ClientConfig(bootstrap=node.url)) as client:
            kept = kept or (await client.open_session("kept", TTL_MS)).session
            while not await led_meanwhile(client, leader, kept):
                pass
    assert kept is not None
    return kept


async def led_meanwhile(client: Client, leader: str | None, kept: str) -> bool:
    """Whether ``leader`` led from the first renewal to the last: a pause of the machine may have taken it away."""
    if leader is not None and (await client.cluster()).controller.leader_node != leader:
        with suppress(StockadeError):
            await client.transfer_leader(None, None, leader)
        return False
    for _ in range(3):
        assert (await client.renew_session(kept, 10_000)).client_id == "kept"
    async with Session(client, "brief") as session:
        brief = session.id
    with pytest.raises(UnknownSession):
        await client.renew_session(brief, 10_000)
    return leader is None or (await client.cluster()).controller.leader_node == leader


async def ended(nodes: list[LocalNode], kept: str) -> None:
    async with Client(ClientConfig(bootstrap=nodes[0].url)) as client:
        await client.close_session(kept)
        with pytest.raises(UnknownSession):
            await client.renew_session(kept, 10_000)

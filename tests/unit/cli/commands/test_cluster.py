import asyncio
import subprocess

import click
import pytest
from sources import ROOT

from stockade.cli.commands.cluster import UNSEEN_MAX, _Move
from stockade.client.api.client import Client
from stockade.partition.api.cluster import Cluster, LeaderInfo, Reassignment
from stockade.partition.api.topics import PartitionState, Topic, TopicConfig


class Moving(Client):
    """A cluster in which ``t/0`` is on ``n1``, on its way to ``heading``."""

    def __init__(self, heading: list[str]) -> None:
        super().__init__()
        self.heading = heading
        self.replicas = ["n1"]

    async def topic(self, name: str, *, patience_ms: int | None = None) -> Topic:
        return Topic("t", 1, 1, False, TopicConfig(), [PartitionState(0, None, None, 1, self.replicas)])

    async def cluster(self) -> Cluster:
        moves = [Reassignment("t", 0, self.heading)] if self.heading != self.replicas else []
        return Cluster("c", "n1", "1", LeaderInfo(None, "n1", 1), [], moves)


def test_who_waits_for_a_move_is_told_when_another_order_takes_its_place() -> None:
    async def run() -> None:
        client = Moving(["n2"])
        move = _Move(client, "t", 0, ["n2"])
        assert not await move.is_done()
        client.heading = ["n3"]
        for _ in range(UNSEEN_MAX - 1):
            assert not await move.is_done()
        with pytest.raises(click.ClickException, match="another order has replaced this one"):
            await move.is_done()

    asyncio.run(run())


def test_a_node_that_is_late_to_know_of_a_move_ends_no_wait() -> None:
    async def run() -> None:
        client = Moving(["n1"])
        move = _Move(client, "t", 0, ["n2"])
        for _ in range(UNSEEN_MAX - 1):
            assert not await move.is_done()
        client.heading = ["n2"]
        assert not await move.is_done()
        client.heading = ["n1"]
        assert not await move.is_done()
        client.replicas = ["n2"]
        assert await move.is_done()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ([], '--nodes 3 --port-base 7101 --data "./data"'),
        (["PORT=8101", "NODES=5", "DATA=/x"], '--nodes 5 --port-base 8101 --data "/x"'),
    ],
)
def test_make_cluster_takes_port_nodes_and_data(variables: list[str], options: str) -> None:
    told = subprocess.run(["make", "-n", "cluster", *variables], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == f".venv/bin/stockade cluster {options}"

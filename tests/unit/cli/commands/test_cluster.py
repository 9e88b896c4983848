import asyncio

import click
import pytest

from stockade.cli.members import UNSEEN_MAX, _Move
from stockade.client.admin import Client
from stockade.client.model import Cluster, Controller, Move, PartitionState, Topic, TopicConfig


class Moving(Client):
    """A cluster in which ``t/0`` is on ``n1``, on its way to ``heading``."""

    def __init__(self, heading: list[str]) -> None:
        super().__init__()
        self.heading = heading
        self.replicas = ["n1"]

    async def topic(self, name: str, *, patience_ms: int | None = None) -> Topic:
        return Topic("t", 1, 1, False, TopicConfig(), [PartitionState(0, None, None, 1, self.replicas)])

    async def cluster(self) -> Cluster:
        moves = [Move("t", 0, self.heading)] if self.heading != self.replicas else []
        return Cluster("c", "n1", "1", Controller(None, "n1", 1), [], moves)


def test_who_waits_for_a_move_is_told_when_another_order_takes_its_place() -> None:
    async def run() -> None:
        client = Moving(["n2"])
        move = _Move(client, "t", 0, ["n2"])
        assert not await move.is_done()
        client.heading = ["n3"]
        for _ in range(UNSEEN_MAX - 1):
            assert not await move.is_done()
        with pytest.raises(click.ClickException, match="another order took the place"):
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

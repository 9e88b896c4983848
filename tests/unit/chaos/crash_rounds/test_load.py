"""The steady load begins, or says that it does not, and leaves nothing running."""

import asyncio
import io

import pytest

from stockade.chaos.crash_rounds import load
from stockade.chaos.crash_rounds.load import SteadyLoad, steady_streams
from stockade.chaos.history.history import History
from stockade.chaos.system.waiting import NotInTime
from stockade.client.config import ClientConfig

from ...client.fake_cluster import FakeCluster

NO_NODE = "http://127.0.0.1:9"


def test_a_load_that_does_not_begin_is_not_in_time_and_leaves_no_writer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stockade chaos rounds` says so; it ended in a traceback."""
    monkeypatch.setattr(load, "START_TIMEOUT_S", 0.1)

    async def begun() -> None:
        config = ClientConfig(bootstrap=(NO_NODE,))
        history = History(io.BytesIO())
        before = asyncio.all_tasks()
        with pytest.raises(NotInTime, match="not every partition has acknowledged a record"):
            async with SteadyLoad(config, history, "t", steady_streams(2, 100), pace_s=0.01, count=1):
                pass
        assert asyncio.all_tasks() == before

    asyncio.run(begun())


def test_a_failed_strike_is_told_at_once_and_not_when_the_batches_in_flight_are_given_up() -> None:
    """`stockade chaos rounds` waited four minutes for nodes that do not come back, and then said that they did not."""

    async def struck(cluster: FakeCluster) -> None:
        config = ClientConfig(bootstrap=tuple(cluster.nodes), session_ttl_ms=300_000, delivery_timeout_ms=300_000)
        load = SteadyLoad(config, History(io.BytesIO()), "t", steady_streams(2, 100), pace_s=0.001, count=1)
        with pytest.raises(NotInTime, match="no node is back"):
            async with asyncio.timeout(20), load:
                for node in cluster.nodes:
                    cluster.kill(node)
                raise NotInTime("no node is back")

    with FakeCluster().running(nodes=2) as cluster:
        cluster.create("t", 2)
        asyncio.run(struck(cluster))

"""The steady load begins, or says that it does not, and leaves nothing running."""

import asyncio
import io

import pytest

from stockade.chaos.crash_rounds import load
from stockade.chaos.crash_rounds.load import SteadyLoad, steady_streams
from stockade.chaos.history.history import History
from stockade.chaos.system.waiting import NotInTime
from stockade.client.config import ClientConfig

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

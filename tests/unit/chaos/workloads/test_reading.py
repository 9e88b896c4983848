"""The readers of a run: what ends one is told."""

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.history.history import History
from stockade.chaos.workloads.reading import Reader


def test_a_reader_that_dies_is_a_failure_of_the_run() -> None:
    """Its task was gathered with all exceptions: the run passed, and a partition had no reader."""

    async def fetch(*_: object, **__: object) -> Any:
        raise TypeError("a bug in the client")

    client: Any = SimpleNamespace(fetch=fetch)
    told: list[str] = []
    with pytest.raises(TypeError):
        asyncio.run(Reader(client, History(io.BytesIO()), "t-reader-0", "t", 0).follow(told.append))
    assert told == ["t-reader-0 ended with TypeError: a bug in the client"]

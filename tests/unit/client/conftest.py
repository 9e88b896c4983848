import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from stockade.client.transport import outage

from .fake_cluster import FakeCluster


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an event loop runs twice: on asyncio's own, and on uvloop, whose timers and errors differ."""
    if "asyncio" in vars(metafunc.module):
        metafunc.parametrize("loop", ["asyncio", "uvloop"], indirect=True)


@pytest.fixture(autouse=True)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The event loop of ``asyncio.run`` in this test."""
    name: str = getattr(request, "param", "asyncio")
    if name == "uvloop":
        monkeypatch.setattr(asyncio, "run", _run_on_uvloop)
    return name


def _run_on_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


@pytest.fixture(autouse=True)
def no_call_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client warns of a call that takes a second, which a busy machine makes of any."""
    monkeypatch.setattr(outage, "WARN_AFTER_S", 600.0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster().running(nodes=2) as running:
        yield running

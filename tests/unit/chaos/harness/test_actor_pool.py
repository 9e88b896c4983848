"""An actor that does not end is a failure of the run, in this process and in one of its own."""

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest

from stockade.chaos.harness import actor_pool
from stockade.chaos.harness.actor_pool import ActorPool
from stockade.chaos.history.history import History
from stockade.chaos.workloads.protocol import Actor


async def hang(_: object) -> None:
    """Wait for an answer that never comes, as where a client loses a delivery."""
    await asyncio.Event().wait()


async def leave(context: Any) -> None:
    await context.stopping.wait()


class Child:
    """A process that ends when its input is closed, or hangs."""

    def __init__(self, name: str, *, hangs: bool) -> None:
        self.name, self.pid, self.is_killed = name, None, False
        self._hangs = hangs

    def resume(self) -> None:
        """It was not stopped."""

    def close_input(self) -> None:
        """It notices."""

    async def ended(self, timeout_s: float) -> None:
        if self._hangs:
            raise TimeoutError

    async def kill(self) -> None:
        self.is_killed = True


def ordered(actor: Actor) -> Any:
    def context(_: object) -> Any:
        return SimpleNamespace(stopping=asyncio.Event())

    return SimpleNamespace(actor=actor.name, find=lambda: actor, context=context)


def test_an_actor_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its operations have unknown outcomes, which no checker minds: a client that never answers would pass."""
    monkeypatch.setattr(actor_pool, "END_TIMEOUT_S", 0.05)
    failures: list[str] = []
    children = {name: Child(name, hangs=name == "child-hangs") for name in ("child-hangs", "child-leaves")}

    async def start(_: object, name: str, *__: object) -> Child:
        return children[name]

    monkeypatch.setattr("stockade.chaos.harness.actor_pool.ChildProcess.start", start)
    actors = [Actor("hangs", hang), Actor("leaves", leave), *(Actor(name, leave, True) for name in children)]

    async def stopped() -> None:
        with History(io.BytesIO()) as history:
            pool = ActorPool([ordered(actor) for actor in actors], history, failures.append)
            await pool.start()
            await pool.stop()

    asyncio.run(stopped())
    assert sorted(failures) == [f"{name} has not ended 0 s after it was asked to" for name in ("child-hangs", "hangs")]
    assert [child.is_killed for child in children.values()] == [True, False]

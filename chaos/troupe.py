"""All actors of one workload at work: tasks here, and processes for those that may be stalled."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import msgspec

from . import actor
from .history import Event, History
from .workloads.protocol import Stage

END_TIMEOUT_S = 150.0
"""An actor must have ended this long after it was told to stop; what is under way then is of unknown outcome."""
LINE_BYTES_MAX = 1 << 20


class ActorFailed(Exception):
    """An actor ended otherwise than it should: a mistake in a workload; the message has what it said."""


class Aside:
    """One actor in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, history: History) -> None:
        self.name = ""
        self._process = process
        self._history = history
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, order: actor.Order, history: History) -> "Aside":
        """Start it with its order."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", actor.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        started = cls(process, history)
        started.name = order.actor
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        return started

    @property
    def pid(self) -> int | None:
        """None once it has ended."""
        return self._process.pid if self._process.returncode is None else None

    async def stop(self) -> None:
        """Tell it to stop, and return when it has. Raises ActorFailed."""
        assert self._process.stdin is not None and self._process.stderr is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                said = await self._process.stderr.read()
                await self._listener
                code = await self._process.wait()
        except TimeoutError:
            await self.kill()
            return
        if code:
            raise ActorFailed(f"{self.name} ended with code {code}: {said.decode(errors='replace')[-2000:]}")

    async def kill(self) -> None:
        """End it whatever it does; safe when it has ended."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._listener.cancel()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._history.absorb(msgspec.json.decode(line, type=Event))


class Troupe:
    """The actors of one workload. ``order`` names topic and seed; the actor is filled in here."""

    def __init__(self, orders: list[actor.Order], history: History, on_failure: Callable[[str], None]) -> None:
        self._orders = orders
        self._history = history
        self._on_failure = on_failure
        self._stages: list[Stage] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._aside: list[Aside] = []

    @property
    def pids(self) -> list[int]:
        """Of the processes that may be stalled."""
        return [aside.pid for aside in self._aside if aside.pid is not None]

    async def start(self) -> None:
        """Everybody begins."""
        for order in self._orders:
            if order.find().apart:
                self._aside.append(await Aside.start(order, self._history))
            else:
                stage = order.stage(self._history)
                self._stages.append(stage)
                self._tasks.append(asyncio.create_task(self._work(order, stage)))

    async def stop(self) -> None:
        """Everybody ends what it has begun; returns when all have."""
        for stage in self._stages:
            stage.stopping.set()
        leaving = [asyncio.create_task(aside.stop()) for aside in self._aside]
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=END_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for outcome in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self._on_failure(str(outcome))

    async def kill(self) -> None:
        """End everybody at once; safe when all have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(aside.kill() for aside in self._aside), return_exceptions=True)

    async def _work(self, order: actor.Order, stage: Stage) -> None:
        try:
            await order.find().work(stage)
        except Exception as error:  # A mistake in a workload must not pass for a quiet one.
            self._on_failure(f"{order.actor} ended with {type(error).__name__}: {error}")
            raise

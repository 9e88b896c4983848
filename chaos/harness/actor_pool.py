"""Runs all actors of one workload: as tasks of this process, or as child processes if they may be stalled."""

import asyncio
from collections.abc import Callable

from ..history.history import History
from ..workloads.protocol import ActorContext
from . import actor
from .child import ChildFailed, ChildProcess

END_TIMEOUT_S = 150.0
"""An actor must have ended this long after it was asked to stop. Longer than any timeout of its client, so one that has
not ended hangs: a failure of the run. Its operations in flight have unknown outcomes.
"""


class ActorPool:
    """The actors of one workload, one for each order."""

    def __init__(self, orders: list[actor.Order], history: History, on_failure: Callable[[str], None]) -> None:
        self._orders = orders
        self._history = history
        self._on_failure = on_failure
        self._contexts: list[ActorContext] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: list[ChildProcess] = []

    @property
    def stallable(self) -> dict[str, int]:
        """The actors that may be stalled, and their process ids."""
        return {process.name: process.pid for process in self._processes if process.pid is not None}

    async def start(self) -> None:
        """Start all actors."""
        for order in self._orders:
            if order.find().own_process:
                self._processes.append(await ChildProcess.start(actor, order.actor, order, self._history))
            else:
                context = order.context(self._history)
                self._contexts.append(context)
                self._tasks.append(asyncio.create_task(self._work(order, context), name=order.actor))

    async def stop(self) -> None:
        """Ask all actors to stop; return when all have finished what they had begun."""
        for context in self._contexts:
            context.stopping.set()
        leaving = [asyncio.create_task(_stop(process)) for process in self._processes]
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=END_TIMEOUT_S)
            for task in late:
                task.cancel()
                self._on_failure(_hangs(task.get_name()))
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for outcome in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self._on_failure(str(outcome))

    async def kill(self) -> None:
        """End all actors at once; safe if they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(process.kill() for process in self._processes), return_exceptions=True)

    async def _work(self, order: actor.Order, context: ActorContext) -> None:
        try:
            await order.find().work(context)
        except Exception as error:  # A bug in a workload must not look like an idle workload.
            self._on_failure(f"{order.actor} ended with {type(error).__name__}: {error}")
            raise


async def _stop(process: ChildProcess) -> None:
    """Let a process end what it has begun; kill it if that takes too long. Raises ChildFailed, in that case too."""
    process.resume()
    process.close_input()
    try:
        await process.ended(END_TIMEOUT_S)
    except TimeoutError:
        await process.kill()
        raise ChildFailed(_hangs(process.name)) from None


def _hangs(actor: str) -> str:
    return f"{actor} has not ended {END_TIMEOUT_S:.0f} s after it was asked to"

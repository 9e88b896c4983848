"""This node's place in the controller group: taken when the catalog gives it one, left when it takes it away."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..raft.group import Group
from .book import Book
from .catalog import CONTROLLER_GROUP
from .control import AppliedController, Control
from .controller import ControllerMachine
from .founding import Founding
from .messages import Founders

_log = logging.getLogger(__name__)


class Seat:
    """``control`` is there while this node holds a replica of the controller group."""

    def __init__(
        self,
        book: Book,
        founding: Founding,
        open_group: Callable[[Founders, AppliedController], Group],
        close_group: Callable[[int], Coroutine[Any, Any, None]],
        duties: Callable[[Control], list[Coroutine[Any, Any, None]]],
        timeout_s: float,
    ) -> None:
        """``duties``: what a controller does in the background; ``timeout_s`` bounds its calls."""
        self.control: Control | None = None
        self._book = book
        self._founding = founding
        self._open_group = open_group
        self._close_group = close_group
        self._duties = duties
        self._timeout_s = timeout_s
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, controllers: list[str]) -> None:
        """Take and leave the seat as the catalog says; ``controllers`` are those configured. Runs until cancelled."""
        try:
            while True:
                if self._book.is_controller:
                    await self._take(controllers)
                else:
                    await self._leave()
                await self._watch()
        finally:
            self._stop_duties()

    async def _take(self, controllers: list[str]) -> None:
        if self._book.index == 0:
            founders = await self._founding.settle(controllers, [entry.node_id for entry in self._book.members()])
        else:
            founders = self._founding.founders()
        _log.info("holding a replica of the controller group%s", "" if founders else ", which exists already")
        state = AppliedController(ControllerMachine())
        control = Control(state, self._open_group(founders, state), self._book.url_of, self._timeout_s)
        self._tasks = [asyncio.create_task(duty) for duty in self._duties(control)]
        self.control = control

    async def _leave(self) -> None:
        """Erased is erased: this node can only join again, whatever it was before."""
        self._stop_duties()
        if self.control is not None:
            _log.info("the controller group moved away from this node")
            self.control = None
            await self._founding.keep({})
            await self._close_group(CONTROLLER_GROUP)

    async def _watch(self) -> None:
        """Return when there is something to do, or a duty ended, which is a bug."""
        held = self.control is not None

        def look() -> bool | None:
            return True if self._book.is_controller != held else None

        while await self._book.changed.until(look, 1.0) is None:
            for task in self._tasks:
                if task.done():
                    task.result()

    def _stop_duties(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

"""Keeps a connection to each node that this one dials: again and again, at the address that is known last."""

import asyncio
import logging
from collections.abc import Callable

from .connection import Connection

_log = logging.getLogger(__name__)

Address = tuple[str, int]


class Dialler:
    """One task for each node that is dialled. ``connection`` makes the protocol of a new connection to a node."""

    def __init__(self, connection: Callable[[str], Connection], timeout_s: float, reconnect_s: float) -> None:
        """A dial is given up after ``timeout_s``; the next begins ``reconnect_s`` after the last connection broke."""
        self._connection = connection
        self._timeout_s = timeout_s
        self._reconnect_s = reconnect_s
        self._addresses: dict[str, Address] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def dial(self, peer: str, address: Address) -> None:
        """Dial a node from now on. A connection that there is stays; the next goes to ``address``."""
        self._addresses[peer] = address
        if peer not in self._tasks:
            self._tasks[peer] = asyncio.get_running_loop().create_task(self._keep(peer))

    def leave(self, peer: str) -> None:
        """Dial a node no more, and give up the dial under way; a connection that there is stays."""
        task = self._tasks.pop(peer, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Dial nobody any more."""
        tasks = list(self._tasks.values())
        for peer in list(self._tasks):
            self.leave(peer)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, peer: str) -> None:
        """Keep a connection to ``peer``, for ever."""
        while True:
            try:
                connection = await self._connect(peer)
            except OSError as error:
                _log.debug("cannot reach %s: %s", peer, error)
            except Exception:  # a bug, but none that may part two nodes for ever
                _log.exception("dialling %s broke", peer)
            else:
                await connection.gone.wait()
            await asyncio.sleep(self._reconnect_s)

    async def _connect(self, peer: str) -> Connection:
        made: list[Connection] = []

        def make() -> Connection:
            made.append(self._connection(peer))
            return made[-1]

        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(make, *self._addresses[peer])
        except (asyncio.CancelledError, TimeoutError):
            for connection in made:  # uvloop closes it without a word
                connection.connection_lost(None)
            raise
        return connection

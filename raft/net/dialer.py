"""Keeps a connection to each node that this node dials: after each failure it dials the last known address again, in
turn with a former one, if the node may be back there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from socket import SOCK_STREAM
from typing import TypeVar

_log = logging.getLogger(__name__)

Address = tuple[str, int]
_Connected = TypeVar("_Connected")


async def first_of(
    address: Address, timeout_s: float, connect: Callable[[Address], Awaitable[_Connected]]
) -> _Connected:
    """What ``connect`` returns for the first address of a host that answers. Each has an equal share of ``timeout_s``:
    one that swallows all packets, as of a broken family, must not hide the others. Raises OSError, that of the last.
    """
    host, port = address
    async with asyncio.timeout(timeout_s):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    *others, last = dict.fromkeys(str(place[0]) for *_, place in found) if len(found) > 1 else (host,)
    share_s = timeout_s / (len(others) + 1)
    for other in others:
        with suppress(OSError):
            async with asyncio.timeout(share_s):
                return await connect((other, port))
    async with asyncio.timeout(share_s):
        return await connect((last, port))


class Dialled(asyncio.Protocol):
    """A connection, as its dialer sees it."""

    closed: asyncio.Event
    """Set when the connection is lost."""
    is_to_be_dialled_again: bool
    """Whether the next dial shall begin without a pause once this connection is lost."""
    peer: str | None
    """The id of the other node, once it is admitted."""


class Dialer:
    """Runs one task for each dialled node. ``connection`` makes the asyncio protocol of a new connection to a node."""

    def __init__(self, connection: Callable[[str], Dialled], timeout_s: float, reconnect_s: float) -> None:
        """A dial times out after ``timeout_s``. The next begins ``reconnect_s`` after a failed dial or the loss of the
        connection.
        """
        self._connection = connection
        self._timeout_s = timeout_s
        self._reconnect_s = reconnect_s
        self._addresses: dict[str, Address] = {}
        self._formers: dict[str, Address] = {}
        self._to_former: set[str] = set()
        """The nodes whose next dial goes to the former address, if they have one."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._told: set[tuple[str, str]] = set()
        """Nodes that could not be reached, each with a failure that is in the log."""

    def dial(self, peer: str, address: Address) -> None:
        """Dial a node from now on, at this address. An open connection stays; the next dial uses the address."""
        self._addresses[peer] = address
        self._to_former.discard(peer)
        if peer not in self._tasks:
            self._tasks[peer] = asyncio.get_running_loop().create_task(self._stay_connected(peer))

    def look_also(self, peer: str, former: Address | None) -> None:
        """Dial a node at this address, too, while it is not connected; None: only at the other one."""
        if former is None:
            self._formers.pop(peer, None)
        else:
            self._formers[peer] = former

    def leave(self, peer: str) -> None:
        """Stop dialling a node, and cancel the dial under way; an open connection stays."""
        self.reached(peer)
        task = self._tasks.pop(peer, None)
        if task is not None:
            task.cancel()

    def reached(self, peer: str) -> None:
        """Forget the failures to reach a node, as it is connected: the same failure after this is news."""
        self._told = {(node, why) for node, why in self._told if node != peer}

    async def stop(self) -> None:
        """Stop dialling all nodes."""
        tasks = list(self._tasks.values())
        for peer in list(self._tasks):
            self.leave(peer)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stay_connected(self, peer: str) -> None:
        while True:
            try:
                connection = await self._connect(peer)
            except OSError as error:
                self._failed(peer, error)
                self._to_former ^= {peer}
            except Exception:  # a bug, which must not separate two nodes for ever
                _log.exception("dialling %s failed", peer)
            else:
                await connection.closed.wait()
                if connection.is_to_be_dialled_again:
                    continue
                if connection.peer is None:  # another process may be there
                    self._to_former ^= {peer}
            await asyncio.sleep(self._reconnect_s)

    def _failed(self, peer: str, error: OSError) -> None:
        """Log a failed dial, once for each reason."""
        (host, port), timeout_s = self._way(peer)
        why = error.strerror or str(error) or f"no answer in {timeout_s:g} s"
        failure = peer, f"cannot reach {peer} at {host}:{port}: {why}"
        if failure not in self._told:
            self._told.add(failure)
            _log.info(failure[1])

    def _way(self, peer: str) -> tuple[Address, float]:
        """Where the next dial of a node goes, and the seconds that it has. A machine that is gone swallows packets: its
        address must not hold up the dial of the other one for long.
        """
        if peer in self._to_former and (former := self._formers.get(peer)) is not None:
            return former, self._timeout_s / 4
        return self._addresses[peer], self._timeout_s

    async def _connect(self, peer: str) -> Dialled:
        return await first_of(*self._way(peer), partial(self._connect_to, peer))

    async def _connect_to(self, peer: str, address: Address) -> Dialled:
        made: list[Dialled] = []

        def make() -> Dialled:
            made.append(self._connection(peer))
            return made[-1]

        try:
            _, connection = await asyncio.get_running_loop().create_connection(make, *address)
        except asyncio.CancelledError:
            for connection in made:  # uvloop closes such a connection without a call of connection_lost
                connection.connection_lost(None)
            raise
        return connection

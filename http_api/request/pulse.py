"""The state of all nodes, read once a second while clients follow it, however many these are."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from ...partition.api.cluster import ClusterState
from ...partition.errors import ThrottlingQuotaExceeded

EVERY_S = 1.0
"""Time between two readings."""
STREAMS_MAX = 100
"""Clients that follow the events of one node."""
_RETRY_AFTER_MS = 5000


class Pulse:
    """Readings that all followers share. Each may see all that a reading has: the right to read the cluster is the same
    for all nodes.
    """

    def __init__(self) -> None:
        self._number = 0
        self._read_at = self._known_at = -EVERY_S
        self._latest: ClusterState | None = None
        self._turn = asyncio.Lock()
        self._streams = 0

    @contextmanager
    def follower(self) -> Iterator[None]:
        """Count one. Raises ThrottlingQuotaExceeded."""
        if self._streams >= STREAMS_MAX:
            text = f"{STREAMS_MAX} clients follow the events of this node already"
            raise ThrottlingQuotaExceeded(text, retry_after_ms=_RETRY_AFTER_MS)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def after(self, seen: int, read: Callable[[], Awaitable[ClusterState]]) -> tuple[int, ClusterState]:
        """A reading after the one with the number ``seen`` that is at most EVERY_S old, and its number."""
        async with self._turn:  # one of the followers reads, with its own credentials; the others get what it has read
            loop = asyncio.get_running_loop()
            if self._latest is None or self._number <= seen or loop.time() > self._known_at + EVERY_S:
                await asyncio.sleep(max(0.0, self._read_at + EVERY_S - loop.time()))
                self._read_at = loop.time()
                self._latest = await read()
                self._known_at = loop.time()
                self._number += 1
            return self._number, self._latest

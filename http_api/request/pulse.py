"""The state of all nodes, read at most once a second while clients follow it, whatever their number."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from ...partition.api.cluster import ClusterState
from ...partition.errors import ThrottlingQuotaExceeded

EVERY_S = 1.0
"""Time between two readings."""
STREAMS_MAX = 100
"""Most clients that follow the events of one node."""
_RETRY_AFTER_MS = 5000


class Pulse:
    """Readings of the cluster's state that all followers share. Sharing is safe, since every follower has the right
    ``read cluster``, and a reading has the same content for all of them.
    """

    def __init__(self) -> None:
        self._number = 0
        self._read_at = self._known_at = -EVERY_S
        self._latest: ClusterState | None = None
        self._turn = asyncio.Lock()
        self._streams = 0

    @contextmanager
    def follower(self) -> Iterator[None]:
        """Count a follower while inside. Raises ThrottlingQuotaExceeded beyond STREAMS_MAX."""
        if self._streams >= STREAMS_MAX:
            text = f"{STREAMS_MAX} clients follow the events of this node already"
            raise ThrottlingQuotaExceeded(text, retry_after_ms=_RETRY_AFTER_MS)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def after(self, seen: int, read: Callable[[], Awaitable[ClusterState]]) -> tuple[int, ClusterState]:
        """The number and the content of a reading that is at most EVERY_S old and newer than the reading ``seen``."""
        async with self._turn:  # one of the followers reads, with its own credentials; the others get what it has read
            loop = asyncio.get_running_loop()
            if self._latest is None or self._number <= seen or loop.time() > self._known_at + EVERY_S:
                await asyncio.sleep(max(0.0, self._read_at + EVERY_S - loop.time()))
                self._read_at = loop.time()
                self._latest = await read()
                self._known_at = loop.time()
                self._number += 1
            return self._number, self._latest

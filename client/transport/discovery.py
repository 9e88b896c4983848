"""Learns the cluster's nodes from the cluster: those of the bootstrap list may go, and others come.

It asks beside the application's requests, after one that was answered, and never twice in AGAIN_S. A client that is
idle asks nothing. When the question fails, the client goes on with the nodes that it knows.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import Context

from ...partition.api.cluster import Cluster
from ...partition.errors import StockadeError

AGAIN_S = 60.0
"""Least time between two questions."""
AGAIN_AFTER_FAILURE_S = 5.0
"""Least time between a question that failed and the next one."""

_log = logging.getLogger(__name__)


class Discovery:
    """``ask`` asks for the cluster, in a single attempt; ``learn`` takes the base URL of each node."""

    def __init__(self, ask: Callable[[], Awaitable[Cluster]], learn: Callable[[str], None]) -> None:
        self._ask = ask
        self._learn = learn
        self._due_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    def answered(self) -> None:
        """A node has answered a request: ask it or another one for the nodes, if that is due."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + AGAIN_S
            # It belongs neither to the call nor to the trace of the request that was answered.
            self._asking = asyncio.get_running_loop().create_task(self._ask_now(), context=Context())

    def found(self, cluster: Cluster) -> None:
        """These are the cluster's nodes now."""
        self._due_s = time.monotonic() + AGAIN_S
        for node in cluster.nodes:
            self._learn(node.url)

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_now(self) -> None:
        try:
            self.found(await self._ask())
        except StockadeError as error:
            self._due_s = time.monotonic() + AGAIN_AFTER_FAILURE_S
            _log.info("the cluster's nodes are not known anew: %s", error)

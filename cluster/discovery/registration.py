"""Tells the controller where this node is and with which disk it came, until the catalog says so."""

import asyncio
import logging
from collections.abc import Sequence

from ..partition.errors import NotFound, StockadeError
from . import commands
from .book import Book
from .catalog import CONTROLLER_GROUP
from .membership_commands import RegisterNode
from .nodes import NodeEntry
from .router import Router

ATTEMPT_S = 5.0
"""How long the controller group may take to decide."""
PAUSE_S = 0.1
"""After an attempt that failed."""
PAUSE_REMOVED_S = 5.0
"""The same when this node was removed: only an operator changes that."""

_log = logging.getLogger(__name__)


class Registrar:
    """``entry`` is this node as it wants to be known."""

    def __init__(self, entry: NodeEntry, configured: Sequence[str], book: Book, router: Router) -> None:
        """``configured``: the controllers by this node's configuration, empty where it does not say."""
        self._entry = entry
        self._configured = list(configured)
        self._book = book
        self._router = router

    @property
    def is_done(self) -> bool:
        """Whether the controller knows this node as it is."""
        known = self._book.find(self._entry.node_id)
        return known is not None and _place(known) == _place(self._entry)

    async def run(self) -> None:
        """Runs until cancelled: a node that was removed and added again registers again."""
        while True:
            if not self.is_done:
                await asyncio.sleep(await self._attempt())
            await self._book.changed.until(lambda: None if self.is_done else True, 1.0)

    async def _attempt(self) -> float:
        """Seconds to wait before it may be tried again."""
        entry = self._entry
        command = RegisterNode(
            now_ms=0,  # the lease clock is the leader's
            node_id=entry.node_id,
            url=entry.url,
            raft=entry.raft,
            zone=entry.zone,
            incarnation=entry.incarnation or 0,
            controllers=self._configured,
        )
        data = commands.encode_command(command)
        try:
            answer = commands.decode_result(
                await self._router.propose(CONTROLLER_GROUP, self._book.controllers, data, ATTEMPT_S)
            )
        except StockadeError as refusal:
            answer = refusal
        if isinstance(answer, StockadeError):
            _log.info("this node is not registered yet: %s", answer.detail)
            return PAUSE_REMOVED_S if isinstance(answer, NotFound) else PAUSE_S
        await self._book.changed.until(lambda: True if self.is_done else None, 1.0)
        return 0.0


def _place(entry: NodeEntry) -> tuple[str, str, str | None, int | None]:
    return entry.url, entry.raft, entry.zone, entry.incarnation

"""Records acts that the controller does not decide in its ledger: the intent before an act, the outcome after it."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ...partition.api.ledger import Outcome
from ...partition.errors import LeaderNotAvailable, RequestTimedOut, StockadeError
from ..controller.commands import Command
from ..controller.ledger import Noted, NoteIntent, NoteOutcome
from ..model import By

Decide = Callable[[Command, float], Awaitable[object]]
"""(command, timeout in seconds) -> the answer of the controller group. Raises its refusal."""
CONCLUDE_TIMEOUT_S = 5.0
"""Time that the answer to a request waits until its outcome is recorded; if it is not, the ledger later calls the
outcome unknown.
"""


class LedgerNotes:
    """Writes to the ledger from any node."""

    def __init__(self, decide: Decide, timeout_s: float, is_kept: Callable[[], bool]) -> None:
        """``is_kept``: whether all members know of ledgers."""
        self._decide = decide
        self._timeout_s = timeout_s
        self._is_kept = is_kept

    @asynccontextmanager
    async def act(
        self, act: str, topic: str | None, partition: int | None, wanted: dict[str, Any], by: By
    ) -> AsyncIterator[dict[str, Any]]:
        """Around an act: the ledger records its intent before the block begins, and its outcome when the block ends,
        with what the block puts into the dictionary. Raises LeaderNotAvailable and LedgerFull: the block did not begin.
        """
        result: dict[str, Any] = {}
        number = await self._intend(act, topic, partition, wanted, by)
        outcome: Outcome = "unknown"
        code: str | None = None
        try:
            yield result
            outcome = "done"
        except StockadeError as refusal:
            outcome, code = "refused" if refusal.no_side_effects else "unknown", refusal.code
            raise
        finally:
            if number:
                await self._conclude(number, outcome, code, result or None)

    async def _intend(self, act: str, topic: str | None, partition: int | None, wanted: dict[str, Any], by: By) -> int:
        if not self._is_kept():
            return 0
        command = NoteIntent(
            now_ms=0, wall_ms=_wall_ms(), by=by, act=act, topic=topic, partition=partition, wanted=wanted
        )
        try:
            noted = await self._decide(command, self._timeout_s)
        except RequestTimedOut as error:  # the intent may be recorded, but nothing was or will be done
            raise LeaderNotAvailable("the ledger could not be written in time; nothing was done") from error
        assert isinstance(noted, Noted), noted
        return noted.number

    async def _conclude(self, number: int, outcome: Outcome, code: str | None, result: dict[str, Any] | None) -> None:
        command = NoteOutcome(now_ms=0, wall_ms=_wall_ms(), intent=number, outcome=outcome, code=code, result=result)
        try:
            await self._decide(command, CONCLUDE_TIMEOUT_S)
        except StockadeError:
            return  # the controller calls the outcome unknown when the intent's time is over


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000

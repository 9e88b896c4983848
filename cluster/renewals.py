"""Renewals of sessions as the controller's leader answers them: many of them prove together that it still leads."""

import asyncio

from .commands import RenewSession, SessionState
from .control import Control

WINDOW_S = 0.03
"""How long a renewal waits for others to share the proof with."""


class Renewals:
    """Answers from the leader's memory where it can, and from the log where it must."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._round: asyncio.Task[None] | None = None

    async def renew(self, session: str) -> SessionState:
        """Full ttl from now. Raises UnknownSession, SessionExpired."""
        control = self._control
        if not control.group.is_leader:
            raise control.not_leading()
        if control.leases.has_begun(control.group.term):
            await self._prove()
            heard = control.leases.renew(control.group.term, session, control.now_ms())
            if heard is not None:
                return heard
        return await control.decide(lambda now: RenewSession(now_ms=now, session=session), SessionState)

    async def _prove(self) -> None:
        """This node led after the call."""
        if self._round is None:
            self._round = asyncio.create_task(self._after_window())
            self._round.add_done_callback(_heed)
        await asyncio.shield(self._round)

    async def _after_window(self) -> None:
        await asyncio.sleep(WINDOW_S)
        self._round = None
        await self._control.barrier()


def _heed(task: "asyncio.Task[None]") -> None:
    """Whoever waited is told; nobody may be left to be told."""
    if not task.cancelled():
        task.exception()

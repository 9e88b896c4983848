"""Renewals of sessions as the controller's leader answers them: many of them prove together that it still leads."""

import asyncio

from ..partition.errors import StockadeError
from .commands import RenewSession, SessionState
from .control import Control

WINDOW_S = 0.03
"""How long a renewal waits for others to share the proof with."""


class Renewals:
    """Answers from the leader's memory where it can, and from the log where it must."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._waiting: list[asyncio.Future[None]] = []
        self._rounds: set[asyncio.Task[None]] = set()

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
        loop = asyncio.get_running_loop()
        proved = loop.create_future()
        self._waiting.append(proved)
        if len(self._waiting) == 1:
            loop.call_later(WINDOW_S, self._begin_round)
        await proved

    def _begin_round(self) -> None:
        waiting, self._waiting = self._waiting, []
        task = asyncio.create_task(self._prove_to(waiting))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    async def _prove_to(self, waiting: list[asyncio.Future[None]]) -> None:
        refusal: StockadeError | None = None
        try:
            await self._control.barrier()
        except StockadeError as error:
            refusal = error
        for proved in waiting:
            if proved.done():  # whoever waited has gone
                continue
            if refusal is None:
                proved.set_result(None)
            else:
                proved.set_exception(refusal)

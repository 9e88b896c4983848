"""Sessions, grants and tickets as the controller's leader serves them. An acquire is answered when its fence is
installed everywhere.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Literal

from ..partition.errors import NotFound, UnknownTopicOrPartition
from .commands import (
    Acquire,
    CancelTicket,
    CloseSession,
    Freed,
    GrantState,
    OfTicket,
    OpenSession,
    Release,
    SessionState,
    TicketState,
)
from .control import Control
from .model import GrantInfo, Mode, SessionInfo, TicketInfo
from .renewals import Renewals

INSTALLING_MAX_S = 5.0
"""An acquire that is not in force everywhere after this time is answered with a ticket."""
SESSION_ID_BYTES = 16
"""Randomness of a session id, which is a secret."""


class Exclusive:
    """Sessions, and the producers that live with them."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._machine = control.machine
        self._renewals = Renewals(control)

    async def open_session(self, client_id: str, ttl_ms: int) -> SessionInfo:
        """A new session with an id that nobody can guess."""
        session = f"s-{secrets.token_hex(SESSION_ID_BYTES)}"
        state = await self._control.decide(
            lambda now: OpenSession(now_ms=now, session=session, client_id=client_id, ttl_ms=ttl_ms),
            SessionState,
        )
        return self._session_info(state)

    async def renew_session(self, session: str) -> SessionInfo:
        """Full ttl from now."""
        return self._session_info(await self._renewals.renew(session))

    async def close_session(self, session: str) -> None:
        """End it; answers when its slots are cleared."""
        freed = await self._control.decide(lambda now: CloseSession(now_ms=now, session=session), Freed)
        await self._control.told(freed.fences, freed.readers)

    async def acquire(
        self,
        topic: str,
        session: str,
        partitions: Sequence[int] | None,
        mode: Mode,
        producer_name: str,
        *,
        resume_epoch: int | None,
        topic_id: int | None,
        wait_ms: int = 0,
        ticket_ttl_ms: int | None = None,
    ) -> GrantInfo | TicketInfo:
        """The whole set or none of it; a ticket while it is in line, or not in force after INSTALLING_MAX_S."""
        decided = await self._control.decide(
            lambda now: Acquire(
                now_ms=now,
                session=session,
                topic=topic,
                partitions=None if partitions is None else sorted(partitions),
                mode=mode,
                producer_name=producer_name,
                topic_id=topic_id,
                resume_epoch=resume_epoch,
                ticket_ttl_ms=ticket_ttl_ms,
            ),
            OfTicket,
        )
        try:
            await self._until_left(decided.ticket_id, wait_ms / 1000)
            ticket = await self._settled(decided.ticket_id, session, INSTALLING_MAX_S)
        except NotFound as error:
            # The ticket was made just now: it can only have gone with its topic.
            raise UnknownTopicOrPartition(topic=topic, partition=None) from error
        return ticket.grant if ticket.grant is not None else ticket

    async def get_ticket(self, ticket: str, session: str, wait_ms: int) -> TicketInfo:
        """State of a ticket, held back up to ``wait_ms`` while it is in line or its grant is not in force. Only who
        asked before it left the line is told ``cancelled``; later it is NotFound.
        """
        await self._control.barrier()
        if _ticket_info(self._machine.ticket(ticket, session)).state == "cancelled":
            raise NotFound(what="ticket")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        await self._until_left(ticket, wait_ms / 1000)
        return await self._settled(ticket, session, deadline - loop.time())

    async def cancel_ticket(self, ticket: str, session: str) -> TicketInfo:
        """Leave the line; the grant, if that came first."""
        state = await self._control.decide(
            lambda now: CancelTicket(now_ms=now, session=session, ticket_id=ticket), OfTicket
        )
        return _ticket_info(state)

    async def release(self, grant: str, session: str) -> None:
        """End a grant; answers when its slots are cleared."""
        freed = await self._control.decide(lambda now: Release(now_ms=now, session=session, grant_id=grant), Freed)
        await self._control.told(freed.fences, freed.readers)

    async def _until_left(self, ticket: str, timeout_s: float) -> None:
        """Until the ticket is not in line any more."""
        left = self._control.state.left
        await left.until(lambda: None if self._machine.is_waiting(ticket) else True, timeout_s)

    async def _settled(self, ticket: str, session: str, timeout_s: float) -> TicketInfo:
        """The ticket; when it has a grant, as soon as that is in force."""
        found = self._machine.ticket(ticket, session)
        if isinstance(found, GrantState):
            grant_id = found.grant_id

            def settled() -> bool | None:
                return None if self._machine.is_in_force(grant_id) is False else True

            await self._control.until(settled, timeout_s)
        return _ticket_info(self._machine.ticket(ticket, session))

    def _session_info(self, state: SessionState) -> SessionInfo:
        remaining = max(0, state.deadline_ms - self._control.now_ms())
        return SessionInfo(state.session, state.client_id, state.ttl_ms, state.deadline_ms, remaining)


def _ticket_info(found: OfTicket) -> TicketInfo:
    """A ticket as its session sees it."""
    state: Literal["waiting", "installing", "granted", "cancelled"]
    if isinstance(found, GrantState):
        state = "granted" if found.is_in_force else "installing"
        grant = grant_info(found) if found.is_in_force else None
        return TicketInfo(found.ticket_id, state, None, found.topic, found.partitions, grant)
    assert isinstance(found, TicketState), found
    state = "waiting" if found.position is not None else "cancelled"
    return TicketInfo(found.ticket_id, state, found.position, found.topic, found.partitions, None)


def grant_info(grant: GrantState) -> GrantInfo:
    """A grant in force, as its holder sees it."""
    return GrantInfo(
        grant.grant_id,
        grant.topic,
        grant.topic_id,
        grant.mode,  # type: ignore[arg-type]
        grant.producer_name,
        grant.partitions,
        grant.epoch,
        {str(partition): epoch for partition, epoch in zip(grant.partitions, grant.epochs, strict=True)},
    )

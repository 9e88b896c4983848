"""Sessions and grants as the controller's leader serves them. An acquire is answered when its fence is installed
everywhere.
"""

import secrets
from collections.abc import Sequence
from typing import Literal

from ..partition.errors import NotFound, RequestTimedOut, UnknownTopicOrPartition
from .commands import (
    Acquire,
    CloseSession,
    Freed,
    GrantState,
    OpenSession,
    Release,
    RenewSession,
    SessionState,
)
from .control import Control
from .model import GrantInfo, Mode, SessionInfo, TicketInfo

INSTALLING_MAX_S = 5.0
"""An acquire that is not in force everywhere after this time is answered with a ticket."""
SESSION_ID_BYTES = 16
"""Randomness of a session id, which is a secret."""


class Exclusive:
    """Sessions, and the exclusive producers that live with them."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._machine = control.machine

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
        state = await self._control.decide(lambda now: RenewSession(now_ms=now, session=session), SessionState)
        return self._session_info(state)

    async def close_session(self, session: str) -> None:
        """End it; answers when its slots are cleared."""
        await self._wait_freed(await self._control.decide(lambda now: CloseSession(now_ms=now, session=session), Freed))

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
    ) -> GrantInfo | TicketInfo:
        """The whole set or none of it; a ticket when it is not in force after INSTALLING_MAX_S."""
        grant = await self._control.decide(
            lambda now: Acquire(
                now_ms=now,
                session=session,
                topic=topic,
                partitions=None if partitions is None else sorted(partitions),
                mode=mode,
                producer_name=producer_name,
                topic_id=topic_id,
                resume_epoch=resume_epoch,
            ),
            GrantState,
        )
        try:
            ticket = await self._ticket_when_in_force(grant.ticket_id, session, INSTALLING_MAX_S)
        except NotFound as error:
            # The ticket was made just now: it can only have gone with its topic.
            raise UnknownTopicOrPartition(topic=topic, partition=None) from error
        return ticket.grant if ticket.grant is not None else ticket

    async def get_ticket(self, ticket: str, session: str, wait_ms: int) -> TicketInfo:
        """State of a ticket, held back up to ``wait_ms`` until its grant is in force."""
        await self._control.barrier()
        return await self._ticket_when_in_force(ticket, session, wait_ms / 1000)

    async def release(self, grant: str, session: str) -> None:
        """End a grant; answers when its slots are cleared."""
        await self._wait_freed(
            await self._control.decide(lambda now: Release(now_ms=now, session=session, grant_id=grant), Freed)
        )

    async def _ticket_when_in_force(self, ticket: str, session: str, timeout_s: float) -> TicketInfo:
        grant_id = self._machine.ticket(ticket, session).grant_id

        def settled() -> bool | None:
            return None if self._machine.is_in_force(grant_id) is False else True

        await self._control.until(settled, timeout_s)
        grant = self._machine.ticket(ticket, session)
        info = grant_info(grant) if grant.is_in_force else None
        state: Literal["granted", "installing"] = "granted" if grant.is_in_force else "installing"
        return TicketInfo(ticket, state, None, grant.topic, grant.partitions, info)

    async def _wait_freed(self, freed: Freed) -> None:
        def over() -> bool | None:
            return True if all(self._machine.is_over(fence) for fence in freed.fences) else None

        if await self._control.until(over, self._control.timeout_s) is None:
            raise RequestTimedOut("freed, but the slots could not be cleared in time")

    def _session_info(self, state: SessionState) -> SessionInfo:
        remaining = max(0, state.deadline_ms - self._control.now_ms())
        return SessionInfo(state.session, state.client_id, state.ttl_ms, state.deadline_ms, remaining)


def grant_info(grant: GrantState) -> GrantInfo:
    """A grant in force, as its holder sees it."""
    epochs = {str(partition): grant.epoch for partition in grant.partitions}
    return GrantInfo(
        grant.grant_id,
        grant.topic,
        grant.topic_id,
        grant.mode,  # type: ignore[arg-type]
        grant.producer_name,
        grant.partitions,
        grant.epoch,
        epochs,
    )

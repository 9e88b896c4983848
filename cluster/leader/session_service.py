"""Sessions, grants and tickets as the controller's leader serves them. An acquire is answered when its fence is
installed on each of its partitions; renewals that come within WINDOW_S share one proof that this node still leads.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from ...partition.api.ledger import session_handle
from ...partition.api.ownership import Grant, SessionFenced, SessionInfo, Ticket
from ...partition.api.topics import Mode
from ...partition.errors import (
    NotFound,
    ProducerBusy,
    SessionExpired,
    UnknownSession,
    UnknownTopicOrPartition,
)
from ..controller.commands import (
    Acquire,
    CancelTicket,
    CloseSession,
    FenceSession,
    Freed,
    GrantState,
    OfTicket,
    OpenSession,
    Release,
    RenewSession,
    SessionEnded,
    SessionState,
    TicketState,
)
from ..controller.sessions import ttl_in_range
from ..features import SESSION_FENCES
from ..model import NO_PRINCIPAL, By
from .controller_group import ControllerGroup

WINDOW_S = 0.03
"""Time that a renewal waits for others, to share one read barrier with them."""


class RenewalBatcher:
    """Renews sessions in the leader's memory where it can, and by a command where it must. Renewals that come within
    WINDOW_S share one read barrier.
    """

    def __init__(self, control: ControllerGroup) -> None:
        self._control = control
        self._round: asyncio.Task[None] | None = None

    async def renew(self, session: str, by: By) -> SessionState:
        """Give the session its full ttl from now on. Raises UnknownSession, SessionExpired, PermissionDenied."""
        control = self._control
        if not control.group.is_leader:
            raise control.not_leading()

        def renewal(now_ms: int) -> RenewSession:
            return RenewSession(now_ms=now_ms, by=by, session=session)

        if not control.leases.has_begun(control.group.term):
            return await control.decide(renewal, SessionState)
        await self._prove()
        heard = control.leases.renew(control.group.term, session, control.now_ms(), by.principal)
        if heard is not None:
            return heard
        return await control.decide_lease(renewal, session, control.machine.sessions.find(session).ttl_ms)

    async def _prove(self) -> None:
        """Return when it is proved that this node led after the call. Raises as the barrier does."""
        if self._round is None:
            self._round = asyncio.create_task(self._prove_to_all())
        await asyncio.shield(self._round)  # it goes on for the others if a caller is cancelled

    async def _prove_to_all(self) -> None:
        await asyncio.sleep(WINDOW_S)
        self._round = None
        await self._control.barrier()


INSTALLING_MAX_S = 5.0
"""An acquire that is not in force everywhere after this time is answered with a ticket."""
SESSION_ID_BYTES = 16
"""Randomness of a session id, which is a secret."""
HANDLES_PER_TURN = 1_000
"""Sessions looked at before others get their turn of the event loop: about 1 ms."""


class SessionService:
    """Sessions, and the grants and tickets that end with them."""

    def __init__(self, control: ControllerGroup) -> None:
        self._control = control
        self._machine = control.machine
        self._renewals = RenewalBatcher(control)

    async def open_session(self, client_id: str, ttl_ms: int, by: By = NO_PRINCIPAL) -> SessionInfo:
        """Open a session; its id is a secret, drawn at random."""
        session = f"s-{secrets.token_hex(SESSION_ID_BYTES)}"
        state = await self._control.decide_lease(
            lambda now: OpenSession(now_ms=now, by=by, session=session, client_id=client_id, ttl_ms=ttl_ms),
            session,
            ttl_in_range(ttl_ms),
        )
        return self._session_info(state)

    async def renew_session(self, session: str, by: By = NO_PRINCIPAL) -> SessionInfo:
        """Give the session its full ttl from now on."""
        return self._session_info(await self._renewals.renew(session, by))

    async def close_session(self, session: str, by: By = NO_PRINCIPAL) -> None:
        """End a session; answers when its slots are cleared."""
        freed = await self._control.decide(lambda now: CloseSession(now_ms=now, by=by, session=session), Freed)
        await self._control.installed(freed.fences, freed.readers)

    async def fence_session(
        self,
        handle: str,
        *,
        reason: str | None = None,
        if_grants: str | None = None,
        if_resources: int | None = None,
        by: By = NO_PRINCIPAL,
    ) -> SessionFenced:
        """End the session with this handle, of any principal. ``if_grants``: only if its grants have this digest;
        ``if_resources``: only if it owns so many. Answers when its slots are cleared; NotFound, of a session that has
        ended before, waits for that, too.
        """
        self._control.features.require(SESSION_FENCES)
        order = FenceSession(
            now_ms=0,
            by=by,
            handle=handle,
            reason=reason,
            if_grants=if_grants,
            if_resources=if_resources,
        )
        try:
            ended = await self._control.decide(lambda now: structs.replace(order, now_ms=now), SessionEnded)
        except NotFound:
            await self._until_cleared(handle)
            raise
        await self._control.installed(ended.fences, ended.readers)
        return SessionFenced(handle, ended.client_id, ended.grants, ended.resources)

    async def _until_cleared(self, handle: str) -> None:
        """Return when all partitions have committed the end of the session with this handle."""
        machine = self._machine
        for place, session in enumerate([*machine.slots.fences.departed_names(), *machine.leaving.sessions()], 1):
            if session_handle(session) == handle:
                left = machine.freed(session)
                await self._control.installed(left.fences, left.readers)
                return
            if place % HANDLES_PER_TURN == 0:
                await asyncio.sleep(0)

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
        ticket_ttl_ms: int | None = None,
        by: By = NO_PRINCIPAL,
    ) -> Grant | Ticket:
        """Acquire the whole set or none of it. Returns a ticket while the acquire is queued, or if the grant is not in
        force within INSTALLING_MAX_S.

        A refusal that the controller decided at once changed nothing. One that ended the grant after it was made says
        so in ``no_side_effects``: the grant may have evicted others and been in force.
        """
        try:
            decided = await self._control.decide(
                lambda now: Acquire(
                    now_ms=now,
                    by=by,
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
        except ProducerBusy as busy:
            self._say_when_it_expires(busy)
            raise
        if isinstance(decided, GrantState):
            await self._until_in_force(decided.grant_id, INSTALLING_MAX_S)
        ticket = self._made_just_now(decided, by)
        return ticket.grant if ticket.grant is not None else ticket

    def _made_just_now(self, decided: OfTicket, by: By) -> Ticket:
        try:
            return _ticket_info(self._machine.ticket(decided.ticket_id, decided.session, by.principal))
        except NotFound as error:  # it can only have ended with its topic
            raise UnknownTopicOrPartition(topic=decided.topic, partition=None).had_effects() from error
        except (UnknownSession, SessionExpired) as error:
            raise error.had_effects() from None  # the session had the grant, or its place in the queue, until it ended

    async def get_ticket(self, ticket: str, session: str, wait_ms: int, by: By = NO_PRINCIPAL) -> Ticket:
        """State of a ticket, held back up to ``wait_ms`` while it is queued or its grant is not in force. Only a call
        that began before the ticket left the queue is answered ``cancelled``; a later one is NotFound.
        """
        await self._control.barrier()
        principal = by.principal
        before = _ticket_info(self._machine.ticket(ticket, session, principal))
        if before.state == "cancelled":
            raise NotFound(what="ticket")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        machine = self._machine
        await self._control.queue_changed.until(
            lambda: None if machine.slots.queue.by_id.get(ticket) is not None else True, deadline - loop.time()
        )
        found = machine.ticket(ticket, session, principal)
        if isinstance(found, GrantState):
            await self._until_in_force(found.grant_id, deadline - loop.time())
        answer = _ticket_info(machine.ticket(ticket, session, principal))
        if answer.state == "cancelled":  # the machine remembers one of its partitions
            return structs.replace(answer, partitions=before.partitions)
        return answer

    async def cancel_ticket(
        self, ticket: str, session: str, by: By = NO_PRINCIPAL, *, or_release: bool = False
    ) -> Ticket:
        """Take a ticket out of the queue. If it has become a grant, in force or not, returns that; with ``or_release``,
        ends the grant.
        """
        state = await self._control.decide(
            lambda now: CancelTicket(now_ms=now, by=by, session=session, ticket_id=ticket), OfTicket
        )
        if or_release and isinstance(state, GrantState):
            await self.release(state.grant_id, session, by)
            return Ticket(ticket, "cancelled", None, state.topic, state.partitions, None)
        return _ticket_info(state)

    async def release(self, grant: str, session: str, by: By = NO_PRINCIPAL) -> None:
        """End a grant; answers when its slots are cleared."""
        freed = await self._control.decide(
            lambda now: Release(now_ms=now, by=by, session=session, grant_id=grant), Freed
        )
        await self._control.installed(freed.fences, freed.readers)

    def _say_when_it_expires(self, busy: ProducerBusy) -> None:
        """Set ``expires_in_ms`` of the holder by the renewals that the leader has heard, which the machine has not."""
        holder = busy.fields["holder"]
        grant = self._machine.slots.grants.by_id.get(holder["grant"]) if holder is not None else None
        if grant is not None:
            deadline_ms = self._control.leases.deadline_ms(self._machine.sessions.find(grant.session))
            holder["expires_in_ms"] = max(0, deadline_ms - self._control.now_ms())

    async def _until_in_force(self, grant_id: str, timeout_s: float) -> None:
        """Return when the grant is in force or has ended, or the time is over."""
        machine = self._machine
        await self._control.changed.until(
            lambda: None if machine.slots.is_in_force(grant_id) is False else True, timeout_s
        )

    def _session_info(self, state: SessionState) -> SessionInfo:
        remaining = max(0, state.deadline_ms - self._control.now_ms())
        return SessionInfo(state.session, state.client_id, state.ttl_ms, state.deadline_ms, remaining)


def _ticket_info(found: OfTicket) -> Ticket:
    """A ticket as its session sees it."""
    state: Literal["waiting", "installing", "granted", "cancelled"]
    if isinstance(found, GrantState):
        grant = None
        if found.is_in_force:
            grant = Grant(
                found.grant_id,
                found.topic,
                found.topic_id,
                found.mode,  # type: ignore[arg-type]
                found.producer_name,
                found.partitions,
                found.epoch,
                {str(partition): epoch for partition, epoch in zip(found.partitions, found.epochs, strict=True)},
            )
        state = "granted" if grant is not None else "installing"
        return Ticket(found.ticket_id, state, None, found.topic, found.partitions, grant)
    assert isinstance(found, TicketState), found
    state = "waiting" if found.position is not None else "cancelled"
    return Ticket(found.ticket_id, state, found.position, found.topic, found.partitions, None)

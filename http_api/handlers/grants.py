"""Handlers of sessions, grants and tickets, all decided by the controller group."""

from contextlib import suppress
from typing import Literal

import msgspec
from aiohttp import web

from ...cluster.front.front import unless_ended
from ...partition.api.ownership import CancelledTicket, Grant, Ticket, TopicFenced
from ...partition.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    NotFound,
    NotLeaderOrFollower,
    PermissionDenied,
    SessionExpired,
    StockadeError,
    Unauthenticated,
    UnknownSession,
)
from ..codec import schemas
from ..codec.json_codec import or_none
from ..request.call import Call, json_answer

WAIT_MS_MAX = 60_000
"""Longest time that a request waits for a ticket to be granted."""


async def open_session(call: Call) -> web.StreamResponse:
    """Open a session."""
    wanted = await call.read_json(schemas.NewSession)
    session = await call.service.at_controller().sessions.open_session(
        wanted.client_id, wanted.ttl_ms, call.by_most("sessions")
    )
    return json_answer(session, 201, {"Location": "/v1/session"})


async def renew_session(call: Call) -> web.StreamResponse:
    """Renew a session for its full ttl."""
    return json_answer(await call.service.at_controller().sessions.renew_session(_session_of(call), call.by))


async def close_session(call: Call) -> web.StreamResponse:
    """Close a session; it is no error if there is none."""
    await call.service.at_controller().sessions.close_session(_session_of(call), call.by)
    return web.Response(status=204)


async def fence_session(call: Call) -> web.StreamResponse:
    """End a session on an operator's order."""
    wanted = await call.read_json(schemas.SessionFence)
    fenced = await call.service.at_controller().sessions.fence_session(
        wanted.handle,
        reason=or_none(wanted.reason),
        if_grants=or_none(wanted.if_grants),
        if_resources=or_none(wanted.if_resources),
        by=call.by,
    )
    return json_answer(fenced)


def _session_of(call: Call) -> str:
    """The session that a request is about: that in the deprecated path, otherwise that in the header."""
    return call.parameters.path("session") if call.parameters.has_path("session") else call.parameters.session()


async def acquire(call: Call) -> web.StreamResponse:
    """Acquire a set of partitions: a grant, or a ticket while others hold them."""
    topic = call.parameters.topic()
    session = call.parameters.session()
    wanted = await call.read_json(schemas.NewGrant)
    call.wait_s = wanted.wait_ms / 1000
    answer = await call.service.at_controller().sessions.acquire(
        topic,
        session,
        _chosen(wanted.partitions),
        wanted.mode,
        wanted.producer_name,
        resume_epoch=or_none(wanted.resume_epoch),
        topic_id=or_none(wanted.topic_id),
        ticket_ttl_ms=or_none(wanted.ticket_ttl_ms),
        by=call.by_name("topic", topic),
    )
    try:
        if isinstance(answer, Ticket) and answer.state == "waiting" and wanted.wait_ms:
            answer = await _later(call, answer, session, wanted.wait_ms)
        call.check_rights()
    except (PermissionDenied, Unauthenticated) as error:
        # The right was taken before the controller decided, or while this call waited.
        with suppress(StockadeError):  # if giving up fails, grant or ticket end with the session
            await _give_up(call, answer, session)
        raise error.had_effects() from None
    if isinstance(answer, Grant):
        return json_answer(answer, 201)
    return json_answer(answer, 202, {"Location": f"/v1/tickets/{answer.ticket}"})


async def _later(call: Call, ticket: Ticket, session: str, wait_ms: int) -> Grant | Ticket:
    """The grant, or the ticket as it is after the wait. The ticket is, or was, in the queue, so no refusal may have
    ``no_side_effects``.
    """
    waiting = call.service.at_controller().sessions.get_ticket(ticket.ticket, session, wait_ms, call.by)
    try:
        found = await unless_ended(call, waiting)
    except NotFound:  # the ticket was cancelled before it could be read
        return msgspec.structs.replace(ticket, state="cancelled", position=None)
    except (NotLeaderOrFollower, LeaderNotAvailable):
        return ticket  # unchanged: its holder will ask the next leader for it
    except (UnknownSession, SessionExpired) as error:
        raise error.had_effects() from None
    return found.grant or found


async def _give_up(call: Call, held: Grant | Ticket, session: str) -> None:
    """Leave the wait queue, or release the grant if the ticket was granted first."""
    sessions = call.service.at_controller().sessions
    if isinstance(held, Grant):
        await sessions.release(held.grant, session, call.by)
    else:
        _ = await sessions.cancel_ticket(held.ticket, session, call.by, or_release=True)


async def get_ticket(call: Call) -> web.StreamResponse:
    """The state of a ticket; the answer waits up to wait_ms while the ticket is in the wait queue."""
    parameters = call.parameters
    ticket, session = parameters.path("ticket"), parameters.session()
    wait_ms = parameters.query_integer("wait_ms", 0, WAIT_MS_MAX, 0)
    call.wait_s = wait_ms / 1000
    waiting = call.service.at_controller().sessions.get_ticket(ticket, session, wait_ms, call.by)
    answer = await unless_ended(call, waiting)
    if wait_ms:
        call.check_rights()
    call.caller.require("acquire", "topic", answer.topic)
    return json_answer(answer)


async def cancel_ticket(call: Call) -> web.StreamResponse:
    """Cancel a ticket, unless it was granted before. If the caller has lost the right to acquire the topic, its grant
    is released.
    """
    parameters, cancel = call.parameters, call.service.at_controller().sessions.cancel_ticket
    name, session = parameters.path("ticket"), parameters.session()
    ticket = await cancel(name, session, call.by)
    if ticket.state != "cancelled" and not call.caller.may("acquire", "topic", ticket.topic):
        ticket = await cancel(name, session, call.by, or_release=True)
    return json_answer(CancelledTicket(ticket.ticket, ticket.state, ticket.grant))


async def release(call: Call) -> web.StreamResponse:
    """Release a grant; it is no error if there is none."""
    parameters = call.parameters
    await call.service.at_controller().sessions.release(parameters.path("grant"), parameters.session(), call.by)
    return web.Response(status=204)


async def fence_topic(call: Call) -> web.StreamResponse:
    """Evict all writers of partitions on an operator's order."""
    topic, topic_id = call.parameters.topic(), call.parameters.topic_id()
    wanted = await call.read_json(schemas.TopicFence)
    partitions = _chosen(wanted.partitions)
    fenced = await call.service.at_controller().resources.fence_topic(
        topic, partitions, topic_id, or_none(wanted.reason), or_none(wanted.if_grants), by=call.by
    )
    return json_answer(TopicFenced(topic, fenced))


def _chosen(partitions: Literal["all"] | list[int]) -> list[int] | None:
    """The partitions of a body, None for all. Raises InvalidRequest when one occurs twice."""
    if partitions == "all":
        return None
    if len(set(partitions)) != len(partitions):
        raise InvalidRequest("partitions: a partition occurs twice")
    return list(partitions)

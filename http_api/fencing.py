"""Handlers of sessions, grants and tickets: who may write. All are decided by the controller
group.
"""

import msgspec
from aiohttp import web

from ..cluster.model import GrantInfo, TicketInfo
from ..partition.errors import NotFound
from . import bodies, shapes, topic_shapes
from .call import Call, json_answer, unless_ended

WAIT_MS_MAX = 60_000
"""Longest time that a call is held for a ticket."""


async def open_session(call: Call) -> web.StreamResponse:
    """Open a session."""
    wanted = shapes.read(await bodies.read_json(call), shapes.NewSession)
    session = await call.service.open_session(wanted.client_id, wanted.ttl_ms)
    return json_answer(session, 201, {"Location": f"/v1/sessions/{session.session}"})


async def renew_session(call: Call) -> web.StreamResponse:
    """Give a session its full time again."""
    return json_answer(await call.service.renew_session(call.parameters.path("session")))


async def close_session(call: Call) -> web.StreamResponse:
    """Close a session; also when there is none."""
    await call.service.close_session(call.parameters.path("session"))
    return web.Response(status=204)


async def acquire(call: Call) -> web.StreamResponse:
    """Acquire a set of partitions."""
    topic = call.parameters.topic()
    session = call.parameters.session()
    wanted = shapes.read(await bodies.read_json(call), shapes.NewGrant)
    call.wait_s = wanted.wait_ms / 1000
    answer = await call.service.acquire(
        topic,
        session,
        shapes.chosen(wanted.partitions),
        wanted.mode,
        wanted.producer_name,
        resume_epoch=shapes.given(wanted.resume_epoch),
        topic_id=shapes.given(wanted.topic_id),
        ticket_ttl_ms=shapes.given(wanted.ticket_ttl_ms),
    )
    if isinstance(answer, TicketInfo) and answer.state == "waiting" and wanted.wait_ms:
        waiting = call.service.get_ticket(answer.ticket, session, wanted.wait_ms)
        try:
            answer = await unless_ended(call, waiting)
        except NotFound:  # it left the line before it was asked
            answer = msgspec.structs.replace(answer, state="cancelled", position=None)
        answer = answer.grant or answer
    if isinstance(answer, GrantInfo):
        return json_answer(answer, 201)
    return json_answer(answer, 202, {"Location": f"/v1/tickets/{answer.ticket}"})


async def get_ticket(call: Call) -> web.StreamResponse:
    """Ask a ticket, waiting while it is in line."""
    given = call.parameters
    ticket, session = given.path("ticket"), given.session()
    wait_ms = given.query_integer("wait_ms", 0, WAIT_MS_MAX, 0)
    call.wait_s = wait_ms / 1000
    return json_answer(await unless_ended(call, call.service.get_ticket(ticket, session, wait_ms)))


async def cancel_ticket(call: Call) -> web.StreamResponse:
    """Leave the line, unless the grant came first."""
    given = call.parameters
    ticket = await call.service.cancel_ticket(given.path("ticket"), given.session())
    return json_answer({"ticket": ticket.ticket, "state": ticket.state, "grant": ticket.grant})


async def release(call: Call) -> web.StreamResponse:
    """Release a grant; also when there is none."""
    given = call.parameters
    await call.service.release(given.path("grant"), given.session())
    return web.Response(status=204)


async def fence_topic(call: Call) -> web.StreamResponse:
    """Throw out whoever may write, on purpose."""
    topic, topic_id = call.parameters.topic(), call.parameters.topic_id()
    wanted = shapes.read(await bodies.read_json(call), topic_shapes.TopicFence)
    partitions = shapes.chosen(wanted.partitions)
    fenced = await call.service.fence_topic(topic, partitions, topic_id, shapes.given(wanted.reason))
    return json_answer({"topic": topic, "partitions": fenced})

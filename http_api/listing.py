"""Handlers of the lists for operators: who is there, and how much they hold."""

from aiohttp import web

from .call import Call, json_answer

LISTED_MAX = 1000
"""Lines of one list at most."""
LISTED_DEFAULT = 100


async def list_sessions(call: Call) -> web.StreamResponse:
    """Live sessions."""
    return json_answer(await call.service.list_sessions(*_wanted(call)))


async def list_groups(call: Call) -> web.StreamResponse:
    """Groups in which something was owned."""
    return json_answer(await call.service.list_groups(*_wanted(call)))


async def list_producers(call: Call) -> web.StreamResponse:
    """Producers with names."""
    return json_answer(await call.service.list_producers(*_wanted(call)))


def _wanted(call: Call) -> tuple[str, int]:
    """Prefix and most."""
    given = call.parameters
    return given.query_text("prefix"), given.query_integer("n", 1, LISTED_MAX, LISTED_DEFAULT)

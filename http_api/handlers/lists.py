"""Handlers of the lists for operators: sessions, groups and producers, and how much each holds."""

from aiohttp import web

from ..request.call import Call, json_answer

LISTED_MAX = 1000
"""Lines of one list at most."""
LISTED_DEFAULT = 100


async def list_sessions(call: Call) -> web.StreamResponse:
    """Live sessions."""
    return json_answer(await call.service.at_controller().lists.list_sessions(*_wanted(call)))


async def list_groups(call: Call) -> web.StreamResponse:
    """Groups in which a resource was owned."""
    return json_answer(await call.service.at_controller().lists.list_groups(*_wanted(call)))


async def list_producers(call: Call) -> web.StreamResponse:
    """Producers with names."""
    internal = call.parameters.query_flag("internal")
    return json_answer(await call.service.at_controller().lists.list_producers(*_wanted(call), internal=internal))


def _wanted(call: Call) -> tuple[str, int]:
    """Prefix of the names, and the most lines."""
    parameters = call.parameters
    return parameters.query_text("prefix"), parameters.query_integer("n", 1, LISTED_MAX, LISTED_DEFAULT)

"""Handlers of the lists for operators: sessions, groups and producers with how much each holds, and wait queues."""

from aiohttp import web

from ..codec.parameters import PARTITION_MAX
from ..request.call import Call, json_answer

LISTED_MAX = 1000
"""Most items of one list."""
LISTED_DEFAULT = 100


async def list_sessions(call: Call) -> web.StreamResponse:
    """List live sessions."""
    holding, handle = call.parameters.query_flag("holding"), call.parameters.query_text("handle") or None
    lists = call.service.at_controller().lists
    return json_answer(await lists.list_sessions(*wanted_of_list(call), holding=holding, handle=handle))


async def list_groups(call: Call) -> web.StreamResponse:
    """List the groups in which a resource was ever owned."""
    return json_answer(await call.service.at_controller().lists.list_groups(*wanted_of_list(call)))


async def list_producers(call: Call) -> web.StreamResponse:
    """List the named producers."""
    internal = call.parameters.query_flag("internal")
    return json_answer(
        await call.service.at_controller().lists.list_producers(*wanted_of_list(call), internal=internal)
    )


async def list_tickets(call: Call) -> web.StreamResponse:
    """The wait queue of a topic, or of one of its partitions."""
    parameters = call.parameters
    most = parameters.query_integer("n", 1, LISTED_MAX, LISTED_DEFAULT)
    wanted = parameters.query_integer("partition", 0, PARTITION_MAX, None)
    return json_answer(await call.service.at_controller().lists.list_tickets(parameters.topic(), wanted, most))


def wanted_of_list(call: Call) -> tuple[str, int]:
    """The query of a list: the prefix of the names, and the most items."""
    parameters = call.parameters
    return parameters.query_text("prefix"), parameters.query_integer("n", 1, LISTED_MAX, LISTED_DEFAULT)

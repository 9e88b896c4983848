"""Handlers of principals: their rights and tokens, and the caller's own."""

from aiohttp import web

from ...cluster.access.principals import from_unix_ms
from ...cluster.leader.principal_service import info
from ...partition.api.principals import CallerInfo
from ...partition.errors import InvalidRequest
from ..codec import schemas
from ..codec.json_codec import or_none
from ..request.call import Call, json_answer
from .lists import wanted_of_list


async def list_principals(call: Call) -> web.StreamResponse:
    """List the principals of the controller's state, and those in the configuration of the controller's leader."""
    configured = call.front.access.configured.values()
    found = await call.service.at_controller().principals.list_principals(*wanted_of_list(call), configured)
    return json_answer(found)


async def get_principal(call: Call) -> web.StreamResponse:
    """One principal, without the secrets of its tokens."""
    name, controller = call.parameters.path("principal"), call.service.at_controller()
    configured = call.front.access.configured.get(name)
    found = info(configured, configured=True) if configured else await controller.principals.get_principal(name)
    return json_answer(found)


async def put_principal(call: Call) -> web.StreamResponse:
    """Create a principal, or replace its rights and the other fields of the body."""
    name = _changed_here(call)
    wanted = await call.read_json(schemas.PrincipalBody)
    tokens = or_none(wanted.tokens)
    found, created = await call.service.at_controller().principals.put_principal(
        name,
        wanted.rights,
        wanted.certificates,
        None if tokens is None else [token.made() for token in tokens],
        subjects=wanted.subjects,
        quota=wanted.quota,
        opens=call.front.access.is_open,
        by=call.by,
    )
    return json_answer(found, 201 if created else 200)


async def delete_principal(call: Call) -> web.StreamResponse:
    """Delete a principal; afterwards no request counts as made by it."""
    await call.service.at_controller().principals.delete_principal(_changed_here(call), call.by)
    return web.Response(status=204)


async def add_token(call: Call) -> web.StreamResponse:
    """Give a principal one more token."""
    name = _changed_here(call)
    wanted = await call.read_json(schemas.NewPrincipalToken)
    expires = from_unix_ms(or_none(wanted.expires_ms))
    made = await call.service.at_controller().principals.add_token(name, or_none(wanted.hash), expires, call.by)
    return json_answer(made, 201)


async def delete_token(call: Call) -> web.StreamResponse:
    """Delete a token of a principal; requests with the token are refused afterwards."""
    name, token = _changed_here(call), call.parameters.path("token")
    await call.service.at_controller().principals.delete_token(name, token, call.by)
    return web.Response(status=204)


async def get_caller(call: Call) -> web.StreamResponse:
    """The caller's principal and its rights."""
    caller, is_open = call.caller, call.front.access.is_open
    return json_answer(CallerInfo(caller.principal or None, list(caller.rights), is_open))


def _changed_here(call: Call) -> str:
    """The name of the path's principal. Raises InvalidRequest for one in node.toml, which is changed there only."""
    name = call.parameters.path("principal")
    if name in call.front.access.configured:
        raise InvalidRequest(f"principal {name} is in node.toml of the nodes: it is changed there")
    return name

"""Refusals as problem documents (RFC 9457): what a StockadeError looks like on the wire.

Owns the shape of every 4xx and 5xx answer. It decides nothing: status, policy and fields are the refusal's
own.
"""

import math
from typing import Any

from aiohttp import web

from ..partition.errors import StockadeError, Unauthenticated
from . import wire

MEDIA_TYPE = "application/problem+json"

_COMMON = ("type", "title", "status", "detail", "instance", "code", "retriable", "no_side_effects")


def document(refusal: StockadeError, instance: str | None = None) -> dict[str, Any]:
    """The members of the problem document; ``instance`` is the id of the request, also found in the node's
    log.
    """
    members: dict[str, Any] = {
        "type": f"/docs/problems#{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "instance": instance,
        "code": refusal.code,
        "retriable": refusal.retriable,
        "no_side_effects": refusal.no_side_effects,
    }
    members |= refusal.fields
    for optional in ("instance", "outcome"):
        if members.get(optional, "") is None:
            del members[optional]
    return members


def own_fields(problem: dict[str, Any]) -> dict[str, Any]:
    """The members of a problem document that are the refusal's own."""
    return {name: value for name, value in problem.items() if name not in _COMMON}


def answer(problem: dict[str, Any]) -> web.Response:
    """The answer that carries a problem document, with Retry-After where it says when to come back."""
    headers = {}
    if "retry_after_ms" in problem:
        headers["Retry-After"] = str(math.ceil(problem["retry_after_ms"] / 1000))
    if problem["status"] == Unauthenticated.http_status:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(body=wire.dump(problem), status=problem["status"], headers=headers, content_type=MEDIA_TYPE)

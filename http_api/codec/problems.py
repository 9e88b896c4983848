"""Refusals as problem documents (RFC 9457): the shape of every 4xx and 5xx answer.

Status, retry policy and fields are those of the StockadeError; nothing is decided here.
"""

import math
from typing import Any

from aiohttp import web

from ...partition.errors import StockadeError, Unauthenticated
from . import json_codec, media

MEDIA_TYPE = "application/problem+json"

_COMMON = ("type", "title", "status", "detail", "instance", "code", "retriable", "no_side_effects", "hint")


def document(refusal: StockadeError, instance: str | None = None) -> dict[str, Any]:
    """The members of a refusal's problem document. ``instance``: the request's id, by which the node's log names it."""
    members: dict[str, Any] = {
        "type": f"/docs/problems#{refusal.code}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "hint": refusal.hint_on("http") or None,
        "instance": instance,
        "code": refusal.code,
        "retriable": refusal.retriable,
        "no_side_effects": refusal.no_side_effects,
    }
    members |= refusal.fields
    for optional in ("hint", "instance", "outcome"):
        if members.get(optional, "") is None:
            del members[optional]
    return members


def own_fields(problem: dict[str, Any]) -> dict[str, Any]:
    """The members of a problem document that only some problems have: the fields of its error."""
    return {name: value for name, value in problem.items() if name not in _COMMON}


def answer(problem: dict[str, Any]) -> web.Response:
    """The answer that carries a problem document, with Retry-After where the problem has retry_after_ms."""
    headers = dict(media.NO_SNIFFING)  # here, since an answer to bytes that are no request passes no middleware
    if "retry_after_ms" in problem:
        headers["Retry-After"] = str(math.ceil(problem["retry_after_ms"] / 1000))
    if problem["status"] == Unauthenticated.http_status:
        headers["WWW-Authenticate"] = "Bearer"
    return web.Response(
        body=json_codec.dump(problem), status=problem["status"], headers=headers, content_type=MEDIA_TYPE
    )


def stream_end(form: str, problem: dict[str, Any]) -> bytes:
    """The last piece of a followed stream that a problem ends. Empty for Arrow, whose end-of-stream mark is missing
    then.
    """
    if form == media.NDJSON:
        return json_codec.dump_line({"problem": problem})
    if form == media.EVENTS:
        return b"event: problem\ndata: " + json_codec.dump(problem) + b"\n\n"
    return b""

"""Refusals that only a client knows, and the way from a problem document back to its class.

Nothing here does IO, so that both clients, the asynchronous and the blocking one, read answers the same way; nor does
it need any library, because the blocking one may not.
"""

import json
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from ..partition.errors import BY_CODE, LeaderNotAvailable, RequestTimedOut, StockadeError, revive

_COMMON = frozenset({"type", "title", "status", "detail", "code", "retriable", "no_side_effects", "instance"})
_FINAL_IF_UNKNOWN = (HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)


class UnknownRefusal(
    StockadeError,
    code="UNKNOWN_REFUSAL",
    http_status=0,
    title="The server refused for a reason that this client does not know",
):
    """A code that this client does not know, or a 4xx without a problem document. 403 and 409 are final."""


class ClusterUnreachable(LeaderNotAvailable, code="CLUSTER_UNREACHABLE", title="No node can be reached"):
    """No node could be connected to; nothing was sent."""


class BufferFull(
    StockadeError, code="BUFFER_FULL", http_status=0, title="The producer's buffer is full", retriable=True
):
    """No room for the record in ``send_timeout_ms``; it was not taken. Fields: bytes_max, waited_ms."""


class ClientClosed(StockadeError, code="CLIENT_CLOSED", http_status=0, title="The client is closed"):
    """The client was closed, or not started; nothing was sent."""


def refusal_of(status: int, body: bytes) -> StockadeError:
    """The refusal that an answer with ``status`` >= 300 stands for.

    Without a problem document somebody between us and the node answered: a 5xx then leaves the outcome open.
    """
    problem = _problem_in(body)
    if problem is None:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RequestTimedOut(f"status {status} without a problem document; the outcome is unknown")
        return _unknown_class(f"HTTP_{status}", status, False, True)(f"unexpected answer with status {status}")
    fields = {name: value for name, value in problem.items() if name not in _COMMON}
    code, detail = problem["code"], str(problem.get("detail", ""))
    if code in BY_CODE:
        return revive(code, detail, fields)
    retriable = bool(problem.get("retriable")) and status not in _FINAL_IF_UNKNOWN
    return _unknown_class(code, status, retriable, bool(problem.get("no_side_effects")))(detail, **fields)


def with_fields(error: StockadeError, detail: str | None = None, **fields: Any) -> StockadeError:
    """A copy with some fields replaced: one refusal may settle several batches, each with its own outcome."""
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    StockadeError.__init__(copy, detail or error.detail, **{**error.fields, **fields})
    return copy


def _problem_in(body: bytes) -> dict[str, Any] | None:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return problem if isinstance(problem, dict) and isinstance(problem.get("code"), str) else None


@lru_cache(maxsize=64)
def _unknown_class(code: str, status: int, retriable: bool, no_side_effects: bool) -> type[UnknownRefusal]:
    policy = {"code": code, "http_status": status, "retriable": retriable, "no_side_effects": no_side_effects}
    return type("UnknownRefusal", (UnknownRefusal,), policy)

"""Refusals that only a client knows, and the class of a problem document's code.

Needs no IO and only the standard library: the blocking client, for which nothing else may be installed, uses it too.
"""

import json
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from ..partition.errors import BY_CODE, InternalError, LeaderNotAvailable, RequestTimedOut, StockadeError, revive

_COMMON = frozenset({"type", "title", "status", "detail", "code", "retriable", "no_side_effects", "instance", "hint"})
_FINAL_IF_UNKNOWN = (HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)


class UnknownRefusal(
    StockadeError,
    code="UNKNOWN_REFUSAL",
    http_status=0,
    title="The server refused for a reason that this client does not know",
):
    """A code that this client does not know, or a 4xx without a problem document. Not retriable with 403 and 409."""


class ClientFault(InternalError, code="CLIENT_FAULT", http_status=0, title="A fault in the client library"):
    """A bug of this library, not of the cluster. The outcome of the request is unknown."""


class ClusterUnreachable(LeaderNotAvailable, code="CLUSTER_UNREACHABLE", title="No node can be reached"):
    """The client could connect to no node; nothing was sent."""


class BufferFull(
    StockadeError, code="BUFFER_FULL", http_status=0, title="The producer's buffer is full", retriable=True
):
    """The buffer had no room within ``send_timeout_ms``; the record was not queued. Fields: bytes_max, waited_ms."""


class ClientClosed(StockadeError, code="CLIENT_CLOSED", http_status=0, title="The client is closed"):
    """The client was closed, or not started; nothing was sent."""


class UsedAfterFork(
    StockadeError,
    code="USED_AFTER_FORK",
    http_status=0,
    title="This object belongs to the parent process: its connections and tasks stayed there; make a new one in each"
    " process, after the fork",
):
    """A client, producer, consumer or session of the parent was used in a forked child; nothing was sent."""


class OtherEventLoop(
    StockadeError,
    code="OTHER_EVENT_LOOP",
    http_status=0,
    title="This object belongs to the event loop in which it was first used: make one for each event loop, or use"
    " stockade.sync, whose objects serve any thread",
):
    """A client, producer, consumer or session was used in a second event loop; nothing was sent."""


class ProducerAborted(
    ClientClosed,
    code="PRODUCER_ABORTED",
    http_status=0,
    title="The producer was stopped before these records had their outcome",
):
    """``abort``, or the cancellation of the producer's block, dropped records that wait to be sent.

    The outcome of records whose request was in flight is unknown, see ``fields["outcome"]``.
    """


def refusal_of(status: int, body: bytes) -> StockadeError:
    """The refusal that an answer with ``status`` >= 300 stands for.

    An answer without a problem document comes from a proxy between client and node: with a 5xx the outcome is unknown.
    """
    problem = _problem_in(body)
    if problem is None:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RequestTimedOut(f"status {status} without a problem document; the outcome is unknown")
        return _unknown_class(f"HTTP_{status}", status, False, True)(f"unexpected answer with status {status}")
    fields = {name: value for name, value in problem.items() if name not in _COMMON}
    code, detail = problem["code"], str(problem.get("detail", ""))
    if code in BY_CODE:
        refusal = revive(code, detail, fields)
        return refusal.had_effects() if problem.get("no_side_effects") is False else refusal
    retriable = bool(problem.get("retriable")) and status not in _FINAL_IF_UNKNOWN
    return _unknown_class(code, status, retriable, bool(problem.get("no_side_effects")))(detail, **fields)


def with_fields(error: StockadeError, detail: str | None = None, **fields: Any) -> StockadeError:
    """A copy with other fields: one refusal may settle several batches, each with an outcome of its own."""
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy.__dict__.pop("_notes", None)  # one of its own, or both would show what is added to either
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

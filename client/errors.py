"""Refusals that only the client raises, and the exception for the problem document of any other refusal.

Needs no IO and only the standard library: the blocking client, for which nothing else may be installed, uses it too.
"""

import json
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

from ..partition.errors import BY_CODE, InternalError, LeaderNotAvailable, RequestTimedOut, StockadeError, revive

_COMMON = frozenset({"type", "title", "status", "detail", "code", "retriable", "no_side_effects", "instance", "hint"})
_FINAL_IF_UNKNOWN = (HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT)


class UnknownRefusal(
    StockadeError,
    code="UNKNOWN_REFUSAL",
    http_status=0,
    title="The server refused for a reason that this client does not know",
):
    """The answer has a code that this client does not know, or it is a 3xx or 4xx without a problem document. ``code``
    is the document's, or ``HTTP_`` and the status.

    With a problem document, ``no_side_effects`` and ``retriable`` are what the document says, but it is never retriable
    with 403 and 409. Without one, nothing was changed, and it is retriable only with 429.
    """


class ClientFault(InternalError, code="CLIENT_FAULT", http_status=0, title="A fault in the client library"):
    """A bug of this library, not of the cluster. The outcome of the request is unknown."""


class ClusterUnreachable(LeaderNotAvailable, code="CLUSTER_UNREACHABLE", title="No node can be reached"):
    """The client could connect to no node; nothing was sent."""


OF_A_WRITE = "; the outcome is unknown"
"""The end of the ``detail`` when no answer, or an unreadable one, came to a request other than a read."""
BEGINNING_CHARACTERS_MAX = 80
"""How many characters of an unreadable answer an error shows."""


class Source(NamedTuple):
    """Where an answer came from: the request's method, the base URL that was asked, and what the answer's head says."""

    method: str
    node: str
    status: int
    content_type: str | None

    def seen(self, body: bytes | bytearray) -> str:
        """A sentence about an answer that is not one of a node: address, status, content type, and its beginning."""
        text = " ".join(body[: 4 * BEGINNING_CHARACTERS_MAX].decode("utf-8", "replace").split())
        begins = f"begins with {text[:BEGINNING_CHARACTERS_MAX]!r}" if text else "is empty"
        kind = self.content_type or "no content type"
        return f"{self.node} gave an answer that no node gives: status {self.status}, {kind}, and the body {begins}"


class UnreadableAnswer(RequestTimedOut, code="UNREADABLE_ANSWER", title="The answer is not one that a node gives"):
    """A proxy between client and node, a captive portal, another service at this address, or a node of another version
    answered. A read changed nothing; of any other request the outcome is unknown. ``detail`` has the address, the
    status, the content type and the first characters. Fields: node, answer_status, content_type.
    """

    def __init__(self, source: Source, body: bytes | bytearray, why: str) -> None:
        """``why``: the reason for which the answer cannot be read."""
        is_read = source.method == "GET"
        detail = f"{source.seen(body)} ({why})" + ("" if is_read else OF_A_WRITE)
        fields = {"node": source.node, "answer_status": source.status, "content_type": source.content_type}
        StockadeError.__init__(self, detail, **fields)
        self.no_side_effects = is_read


class BufferFull(
    StockadeError, code="BUFFER_FULL", http_status=0, title="The producer's buffer is full", retriable=True
):
    """The buffer had no room within ``send_timeout_ms``; the record was not queued. Fields: bytes_max, waited_ms."""


class ClientClosed(StockadeError, code="CLIENT_CLOSED", http_status=0, title="The client is closed"):
    """The client was closed, or not started; nothing was sent."""


class PlaintextRefused(
    StockadeError,
    code="PLAINTEXT_REFUSED",
    http_status=0,
    title="The cluster led from https to http: a client that began with TLS sends nothing without it",
):
    """A node's answer, or the list of the cluster's nodes, named a node at ``http://`` after a bootstrap with
    ``https://``. Nothing was sent there, no token and no record. Field: node.
    """

    def __init__(self, node: str) -> None:
        """``node``: the base URL that was named."""
        detail = f"{node} is without TLS, and the bootstrap addresses are not: nothing was sent there"
        StockadeError.__init__(self, detail, node=node)


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
    """``abort``, or the cancellation of the producer's block, dropped the records that were not sent yet.

    The outcome of records whose request was in flight is unknown, see ``fields["outcome"]``.
    """


def unanswered(method: str, what: str) -> RequestTimedOut:
    """The error of a request without an answer. A GET changed nothing; of any other ``method`` the outcome is unknown.

    ``what``: what happened, with the address that was asked.
    """
    if method != "GET":
        return RequestTimedOut(f"{what}{OF_A_WRITE}")
    error = RequestTimedOut(what)
    error.no_side_effects = True
    return error


def refusal_of(source: Source, body: bytes | bytearray) -> StockadeError:
    """The refusal that an answer with a status >= 300 stands for.

    An answer without a problem document comes from a proxy between client and node, or from another service: with a 5xx
    the outcome is unknown.
    """
    status = source.status
    problem = _problem_in(body)
    if problem is None:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return UnreadableAnswer(source, body, "without a problem document")
        is_overload = status == HTTPStatus.TOO_MANY_REQUESTS  # of a proxy in between; it passes
        kind = _unknown_class(f"HTTP_{status}", status, is_overload, True)
        return kind(f"{source.seen(body)}. Is it the address of one?")
    return refusal_in(problem, status)


def refusal_in(problem: dict[str, Any], status: int) -> StockadeError:
    """The refusal that a problem document stands for."""
    fields = {name: value for name, value in problem.items() if name not in _COMMON}
    code, detail = problem["code"], str(problem.get("detail", ""))
    if code in BY_CODE:
        refusal = revive(code, detail, fields)
        return refusal.had_effects() if problem.get("no_side_effects") is False else refusal
    retriable = bool(problem.get("retriable")) and status not in _FINAL_IF_UNKNOWN
    return _unknown_class(code, status, retriable, bool(problem.get("no_side_effects")))(detail, **fields)


def with_fields(error: StockadeError, detail: str | None = None, **fields: Any) -> StockadeError:
    """A copy of ``error`` with other fields: one refusal may settle several batches, each with an outcome of its own.

    The copy has no traceback: an exception that is raised again and again keeps each frame that it passed, and the
    records in these frames, for as long as the exception itself is kept.
    """
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy.__dict__.pop("_notes", None)  # the notes are a list: if shared, each error would show the other's notes
    copy.__cause__ = error.__cause__
    StockadeError.__init__(copy, detail or error.detail, **{**error.fields, **fields})
    return copy


def _problem_in(body: bytes | bytearray) -> dict[str, Any] | None:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return problem if isinstance(problem, dict) and isinstance(problem.get("code"), str) else None


@lru_cache(maxsize=64)
def _unknown_class(code: str, status: int, retriable: bool, no_side_effects: bool) -> type[UnknownRefusal]:
    policy = {"code": code, "http_status": status, "retriable": retriable, "no_side_effects": no_side_effects}
    return type("UnknownRefusal", (UnknownRefusal,), policy)

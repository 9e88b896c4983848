"""Requests as plain as most of the frequent ones are, and their answers: what the handlers of short ways share."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, cast

from aiohttp import web

from ..cluster.model import Leader
from . import media
from .context import Context

PLAIN_HEADERS = frozenset(
    ("host", "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "user-agent")
)
"""Headers that nothing but the checks of a short way looks at."""

_ACCEPT = (None, "*/*", media.JSON)


def fields(request: web.Request) -> Mapping[str, str]:
    """The headers of a request on the short way, by name in lower case."""
    found: Mapping[str, str] = cast(Any, request).fields
    return found


def is_plain(headers: Mapping[str, str], names: frozenset[str] = PLAIN_HEADERS) -> bool:
    """Whether there are no headers but these, and JSON is an answer. Names are in lower case (framing.py)."""
    return names.issuperset(headers) and headers.get("accept") in _ACCEPT


class Plain(NamedTuple):
    """As much of an answer as goes out (lane.serialized)."""

    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    status: int = 200
    reason: str = "OK"

    @classmethod
    def of(cls, context: Context, leader: Leader, body: bytes) -> Self:
        """JSON, decided by ``leader``."""
        headers = {
            "Content-Type": media.JSON,
            "Stockade-Leader": leader.url or "",
            "Stockade-Leader-Term": str(leader.term),
        }
        return cls(headers, body, keep_alive=not context.is_leaving)

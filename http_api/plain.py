"""Requests as plain as most of the frequent ones are, and their answers: what the handlers of short ways share."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

from ..cluster.model import Leader
from . import media
from .context import Context

PLAIN_HEADERS = frozenset(
    ("host", "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "user-agent")
)
"""Headers that nothing but the checks of a short way looks at."""

LEADERS_REMEMBERED_MAX = 1024
"""Leaders in a term, with which answers begin, that need not be spelled out again."""

_ACCEPT = (None, "*/*", media.JSON)


def is_plain(headers: Mapping[str, str], names: frozenset[str] = PLAIN_HEADERS) -> bool:
    """Whether there are no headers but these, and JSON is an answer. Names are in lower case (framing.py)."""
    return names.issuperset(headers) and headers.get("accept") in _ACCEPT


class Plain(NamedTuple):
    """As much of an answer as goes out. ``head``: its first lines, with all headers that are not said of every one."""

    head: bytes
    body: bytes
    keep_alive: bool
    status: int = 200

    @classmethod
    def of(cls, context: Context, leader: Leader, body: bytes, more: bytes = b"") -> Self:
        """JSON, decided by ``leader``; ``more``: lines of other headers."""
        return cls(_led_by(leader.url or "", leader.term) + more, body, not context.is_leaving)


def head_of(status: int, reason: str | None, headers: Iterable[tuple[str, str]]) -> bytes:
    """The first lines of an answer. Raises ValueError for a header that would end its line."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers), ""]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header has a line end in it")
    return "\r\n".join(lines).encode()


@lru_cache(LEADERS_REMEMBERED_MAX)
def _led_by(url: str, term: int) -> bytes:
    headers = {"Content-Type": media.JSON, "Stockade-Leader": url, "Stockade-Leader-Term": str(term)}
    return head_of(200, "OK", headers.items())

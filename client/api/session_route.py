"""Which route a request about the caller's session takes: the one with the id in a header, or in the path.

An id in the path gets into the logs of proxies; only nodes of the previous release need it there (commit 787c146).
While a cluster is upgraded, a node of this release may forward a request to a controller's leader of the previous one.
So no single node determines which route works, and a client remembers one route for all nodes. A node that does not
know a route has done nothing, so the other route may be tried.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...partition.errors import InvalidRequest, NotFound
from ..transport.calls import quoted

REMEMBERED_S = 600.0
"""Time after which the route without an id in its path is tried again: the upgrade may be over."""

T = TypeVar("T")


class SessionRoute:
    """Remembers for REMEMBERED_S that the cluster needs the id in the path. ``now_s``: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._by_path_until_s = 0.0

    async def ask(self, session: str, attempt: Callable[[str, dict[str, str]], Awaitable[T]]) -> T:
        """The result of ``attempt`` with path and headers of one route, or of the other if the first is not known.

        Raises the refusal of ``attempt``, and InvalidRequest for a ``session`` that cannot be an id.
        """
        is_by_path = self._now_s() < self._by_path_until_s
        try:
            return await attempt(*_route(session, is_by_path=is_by_path))
        except NotFound as error:
            if error.fields.get("what") != "route":
                raise
        self._by_path_until_s = 0.0 if is_by_path else self._now_s() + REMEMBERED_S
        return await attempt(*_route(session, is_by_path=not is_by_path))


def session_header(session: str) -> dict[str, str]:
    """The header that names the session of a request. Raises InvalidRequest for a ``session`` that cannot be an id."""
    if not isinstance(session, str) or not session or not session.isprintable():
        raise InvalidRequest("session: not the id of a session")  # not shown: it may hold an id, which is a secret
    return {"Stockade-Session": session}


def _route(session: str, *, is_by_path: bool) -> tuple[str, dict[str, str]]:
    return (f"/v1/sessions/{quoted(session)}", {}) if is_by_path else ("/v1/session", session_header(session))

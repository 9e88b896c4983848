"""Which route a request about the caller's session takes: the one with the id in a header, or in the path.

The id in the path gets into the logs of proxies, and only nodes of the release before want it there (commit 787c146).
While a cluster is upgraded, the leader of the controller may be one of those, behind a node of this release: so what
answers depends on both, and one memory serves the whole client. A node that does not know a route has done nothing.
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
    """``now_s``: a clock that only rises."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._by_path_until_s = 0.0

    async def ask(self, session: str, attempt: Callable[[str, dict[str, str]], Awaitable[T]]) -> T:
        """What ``attempt`` answers with a path and headers, or with the other ones where no node has the first route.

        Raises its refusal, and InvalidRequest for what cannot be an id.
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
    """The header that says whose request it is. Raises InvalidRequest for what cannot be an id."""
    if not isinstance(session, str) or not session.isprintable():
        raise InvalidRequest("session: not the id of a session")  # it may be one all the same: it is not shown
    return {"Stockade-Session": session}


def _route(session: str, *, is_by_path: bool) -> tuple[str, dict[str, str]]:
    return (f"/v1/sessions/{quoted(session)}", {}) if is_by_path else ("/v1/session", session_header(session))

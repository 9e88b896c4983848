"""What is remembered of grants and tickets that ended before their session did. Pure state of the controller's machine.

So a session that comes to ask learns why, and is not told that there was nothing.
"""

import msgspec

from .commands import GroupId

ENDED_PER_SESSION_MAX = 16
"""Endings remembered of a live session; past it the oldest is forgotten."""


class Ended(msgspec.Struct, frozen=True):
    """Why, and one of its partitions. ``reason``: of PRODUCER_FENCED, or ``cancelled``."""

    reason: str
    group_id: GroupId


SavedEndings = list[tuple[str, list[tuple[str, Ended]]]]
"""By session, then by ticket, the oldest first."""


class Endings:
    """By session and ticket."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, Ended]] = {}

    def remember(self, session: str, ticket_id: str, reason: str, group: GroupId) -> None:
        """A grant or ticket has ended."""
        ended = self._ended.setdefault(session, {})
        ended.pop(ticket_id, None)
        ended[ticket_id] = Ended(reason, group)
        if len(ended) > ENDED_PER_SESSION_MAX:
            del ended[next(iter(ended))]

    def find(self, session: str, ticket_id: str) -> Ended | None:
        """None: it has not ended, is forgotten, or was never there."""
        return self._ended.get(session, {}).get(ticket_id)

    def forget(self, session: str) -> None:
        """The session is no more."""
        self._ended.pop(session, None)

    def save(self) -> SavedEndings:
        """Everything that decides future answers."""
        return [(session, list(ended.items())) for session, ended in sorted(self._ended.items())]

    def load(self, saved: SavedEndings) -> None:
        """Inverse of save, into an empty one."""
        self._ended = {session: dict(ended) for session, ended in saved}

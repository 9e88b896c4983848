"""The last backup in each place, as its maker told the controller. Nodes neither make backups nor read from these
places.
"""

from collections.abc import Iterable

from msgspec import structs

from ...partition.api.cluster import NotedBackup
from ...partition.errors import InvalidRequest
from .timed import Asked

PLACES_MAX = 16
"""Beyond it, the controller forgets the place whose backup was noted longest ago."""
PLACE_CHARACTERS_MAX = 500
NAME_CHARACTERS_MAX = 100
AHEAD_MS_MAX = 3_600_000
"""How far the clock of a backup's maker may be ahead of the leader's: a backup that is noted with a time far in the
future would be the newest of its place until then.
"""


class NoteBackup(Asked, frozen=True, tag="note_backup"):
    """A backup was made. It replaces the backup that was noted for its place before, if it is newer than that. Its
    principal is the caller's. Answers Done, or InvalidRequest.
    """

    made: NotedBackup


class Backups:
    """The last backup of each place, in the order in which the places were last noted."""

    def __init__(self) -> None:
        self.rows: dict[str, NotedBackup] = {}

    def note(self, command: NoteBackup) -> NotedBackup:
        """Remember a backup, unless a newer one of its place is known. Returns it with its principal, in both cases:
        the ledger records the report, and the state the newest backup. Raises InvalidRequest.
        """
        noted = structs.replace(command.made, principal=command.by.principal or None)
        texts = (("place", noted.place, PLACE_CHARACTERS_MAX), ("name", noted.name, NAME_CHARACTERS_MAX))
        for name, text, most in texts:
            if not 0 < len(text) <= most or not text.isprintable():
                raise InvalidRequest(f"{name}: 1 to {most} printable characters")
        known = self.rows.pop(noted.place, noted)
        if len(self.rows) == PLACES_MAX:
            del self.rows[next(iter(self.rows))]
        self.rows[noted.place] = max(known, noted, key=lambda each: each.cut_ms)
        return noted

    def save(self) -> list[NotedBackup]:
        """The state on which future answers depend."""
        return list(self.rows.values())

    def load(self, saved: Iterable[NotedBackup]) -> None:
        """Inverse of ``save``."""
        self.rows = {row.place: row for row in saved}

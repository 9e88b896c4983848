"""The last backup in each place, as those who made them told it. Nodes make none and ask no place."""

from collections.abc import Iterable

from ...partition.api.cluster import NotedBackup
from ...partition.errors import InvalidRequest
from .timed import Asked

PLACES_MAX = 16
"""When another place comes, the one that was told of longest ago is forgotten."""
PLACE_CHARACTERS_MAX = 500
NAME_CHARACTERS_MAX = 100


class NoteBackup(Asked, frozen=True, tag="note_backup"):
    """A backup was made: fields as in NotedBackup. What is told of a place takes the place of what was told before,
    unless it is older. Answers Done, or InvalidRequest.
    """

    place: str
    name: str
    cut_ms: int
    took_ms: int
    topics: int
    records: int
    bytes: int


class Backups:
    """By place, the one that was told of longest ago first."""

    def __init__(self) -> None:
        self.rows: dict[str, NotedBackup] = {}

    def note(self, command: NoteBackup) -> NotedBackup:
        """What was told. Raises InvalidRequest."""
        for name, text, most in (
            ("place", command.place, PLACE_CHARACTERS_MAX),
            ("name", command.name, NAME_CHARACTERS_MAX),
        ):
            if not 0 < len(text) <= most or not text.isprintable():
                raise InvalidRequest(f"{name}: 1 to {most} printable characters")
        sizes = command.topics, command.records, command.bytes
        noted = NotedBackup(
            command.place, command.name, command.cut_ms, command.took_ms, *sizes, command.by.principal or None
        )
        known = self.rows.pop(command.place, noted)
        if len(self.rows) == PLACES_MAX:
            del self.rows[next(iter(self.rows))]
        self.rows[command.place] = max(known, noted, key=lambda each: each.cut_ms)
        return noted

    def save(self) -> list[NotedBackup]:
        """Everything that decides future answers."""
        return list(self.rows.values())

    def load(self, saved: Iterable[NotedBackup]) -> None:
        """Inverse of save."""
        self.rows = {row.place: row for row in saved}

"""What the write-ahead log stores: the values it returns."""

from pathlib import Path

import msgspec

Location = int
"""Where an entry's payload lies: file number, position and length packed into one integer. Opaque outside the log."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One log entry of a group, without its payload (``Wal.read(location)`` has it)."""

    index: int
    term: int
    location: Location


class RecoveredGroup(msgspec.Struct):
    """What the log holds of one group: its current term, its vote in that term, and its entries by ascending index."""

    term: int = 0
    voted_for: str | None = None
    entries: list[Entry] = msgspec.field(default_factory=list)


class WalLocked(Exception):
    """Another process uses this data folder."""


class WalFailed(Exception):
    """The log takes no more records: an earlier write or fdatasync failed, or the log was closed."""


class WalCorrupt(Exception):
    """Records that were on disk are damaged; starting would silently lose them."""

    def __init__(self, path: Path, position: int, explanation: str) -> None:
        super().__init__(f"{path}, position {position}: {explanation}")
        self.path = path
        self.position = position
        self.explanation = explanation

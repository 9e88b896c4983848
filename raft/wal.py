"""The write-ahead log of a node: one stream of records for all its groups, made durable by one stream of fdatasyncs."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from .wal_records import Entry, Location, RecoveredGroup, WalCorrupt, WalFailed, WalLocked

__all__ = ["Entry", "Location", "RecoveredGroup", "Wal", "WalCorrupt", "WalFailed", "WalLocked"]

FILE_BYTES = 64 << 20
CACHE_BYTES_MAX = 64 << 20


class Wal:
    """One shared, append-only log of a node.

    Every record gets the next log sequence number (lsn). Records appended while a flush runs are made durable together by
    the next one. All methods run on the event loop; write and fdatasync run in one thread of the log's own.

    After any error of a write or an fdatasync the log is finished: ``on_failure`` is called once with the error, no fsync is
    repeated, ``durable_lsn`` never grows again, and every later append raises WalFailed.
    """

    recovered: dict[int, RecoveredGroup]
    """What the log held when it was opened, by group id. Groups that were erased are absent."""
    durable_lsn: int
    """Every record up to and including this number is on disk. 0 at opening; what was recovered is on disk already."""
    on_durable: Callable[[], None]
    """Called on the loop each time ``durable_lsn`` has grown. Does nothing until it is set."""

    @classmethod
    def open(
        cls,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[BaseException], None],
        file_bytes: int = FILE_BYTES,
        cache_bytes_max: int = CACHE_BYTES_MAX,
    ) -> "Wal":
        """Recover what ``directory`` holds (created if absent) and get ready to append. Blocks while it reads.

        ``file_bytes`` is the size a file is preallocated to. ``cache_bytes_max`` bounds the payloads of durable records
        kept in memory. Raises WalLocked if another process uses the directory, WalCorrupt if records that were on disk
        are damaged, OSError if the disk cannot be read or written.
        """
        raise NotImplementedError

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not durable yet. They are held in memory: whoever appends keeps this bounded."""
        raise NotImplementedError

    def append(self, group_id: int, index: int, term: int, payload: bytes) -> tuple[int, Location]:
        """Append an entry; answers its lsn and where to read it. ``index`` follows the group's last index, if it has one."""
        raise NotImplementedError

    def truncate(self, group_id: int, from_index: int) -> int:
        """Forget the group's entries from ``from_index`` on; answers the lsn. If none is left, any index may follow."""
        raise NotImplementedError

    def save_vote(self, group_id: int, term: int, voted_for: str | None) -> int:
        """Record the group's current term and whom this node voted for in it; answers the lsn."""
        raise NotImplementedError

    def erase(self, group_id: int) -> int:
        """Forget the group: its entries, its term and its vote; answers the lsn."""
        raise NotImplementedError

    def read(self, location: Location) -> bytes:
        """The payload of an entry, durable or not. Raises WalCorrupt if what the disk returns is not what was written."""
        raise NotImplementedError

    async def close(self) -> None:
        """Make everything appended durable, then let go of files, thread and lock. Calling it again does nothing."""
        raise NotImplementedError

"""The replicated principals on a node's disk: a node that restarts knows them before it meets a controller, so it is
never open to every caller in between.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from ...partition.log.fsutil import write_durably
from ...partition.log.modes import SECRET_MODE
from ...raft.threads import in_thread
from ...raft.wal.errors import DiskRefused
from .principals import UNHEARD, Principal

FILE = "principals.json"
"""File in a node's data folder. Of tokens it has only the salted hashes."""


class PrincipalTable(msgspec.Struct, frozen=True):
    """The principals of the cluster as of an index of the controller's log; 0: there never were any; UNHEARD: this node
    has not heard yet.
    """

    index: int = 0
    rows: list[Principal] = []


class PrincipalStore:
    """The table of principals in memory and on disk. ``table`` is the newest that this node knows, and no older one
    ever takes its place: a replica of the controller that restarts replays its log, and so passes through older tables.
    """

    def __init__(self, data: Path, *, is_member: bool = True) -> None:
        """Read the file, if there is one. Without one, a node that ``is_member`` knows a cluster that never had any,
        and another node knows nothing. Raises DiskRefused when the file is damaged.
        """
        self._path = data / FILE
        self.table: PrincipalTable = _read(self._path) or PrincipalTable(0 if is_member else UNHEARD)
        self._written_index = self.table.index
        self._tell: Callable[[PrincipalTable], None] = lambda table: None

    @property
    def has_heard(self) -> bool:
        """Whether this node knows of the cluster's principals, or that there are none."""
        return self.table.index != UNHEARD

    @property
    def written_index(self) -> int:
        """The index of the table on disk."""
        return self._written_index

    def tell(self, follower: Callable[[PrincipalTable], None]) -> None:
        """Call ``follower`` with the table, now and with each newer one."""
        self._tell = follower
        follower(self.table)

    def take(self, table: PrincipalTable) -> None:
        """Take a table over and tell the follower, if it is newer than the present one."""
        if table.index > self.table.index:
            self.table = table
            self._tell(table)

    async def write(self) -> None:
        """Write the table to disk durably, unless it is there already. One call at a time."""
        table = self.table
        if table.index > self._written_index:
            await in_thread(write_durably, self._path, msgspec.json.encode(table), SECRET_MODE)
            self._written_index = table.index


def _read(path: Path) -> PrincipalTable | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=PrincipalTable)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DiskRefused(path, f"damaged ({error})") from error

"""Tombstones of the replicas that were erased on this node: one small file each, which outlives the replica.

They bind the node if it joins the group again with the same disk (``GroupTombstone`` says why). Everything here blocks.
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...partition.log.fsutil import write_durably
from ..log.origin import NO_TOMBSTONE, GroupTombstone
from ..wal.errors import DiskRefused
from ..wal.records import RecoveredGroup

_GROUP = re.compile("[0-9a-f]{16}")


class Tombstones:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, group_id: int) -> GroupTombstone:
        """The group's tombstone, or NO_TOMBSTONE if it has none. Raises DiskRefused if it is damaged."""
        path = self._path(group_id)
        try:
            return msgspec.json.decode(path.read_bytes(), type=GroupTombstone)
        except FileNotFoundError:
            return NO_TOMBSTONE
        except msgspec.DecodeError as error:
            raise DiskRefused(
                path, f"what this node had promised before it left the group is unreadable: {error}"
            ) from error

    def write(self, group_id: int, tombstone: GroupTombstone) -> None:
        """Store a group's tombstone; it is on disk when this returns."""
        write_durably(self._path(group_id), msgspec.json.encode(tombstone))

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Remove the tombstones of the groups for which ``is_gone`` returns True: they are never opened again."""
        if self._directory.exists():
            for path in self._directory.iterdir():
                if _GROUP.fullmatch(path.name) and is_gone(int(path.name, 16)):
                    path.unlink()

    def of_unopened(self, group_id: int, recovered: RecoveredGroup, covered: tuple[int, int]) -> GroupTombstone:
        """The tombstone for a group that is erased without having been opened since the start, made from its records in
        the log, its last tombstone, and ``covered``, the (term, index) of its checkpoint. A replica acks what a copied
        checkpoint covers before the log has a record of it.
        """
        before, last = self.read(group_id), recovered.entries[-1:]
        end = (last[0].term, last[0].index) if last else (recovered.term, recovered.covered)
        end = max(end, (before.last_term, before.last_index), covered)
        return GroupTombstone(max(recovered.term, before.term, covered[0]), *end)

    def _path(self, group_id: int) -> Path:
        return self._directory / f"{group_id:016x}"

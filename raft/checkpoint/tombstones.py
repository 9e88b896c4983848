"""What replicas that were erased on this node had promised: one small file for each, which outlives them.

A node that is taken in again with the disk that it had then is bound by it (``Left`` says why). Blocking.
"""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from .durable import write_durably
from .origin import NEVER_LEFT, Left
from .refusal import DiskRefused
from .wal_records import RecoveredGroup

_GROUP = re.compile("[0-9a-f]{16}")


class Departures:
    """The files, in a folder of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, group_id: int) -> Left:
        """What was promised in a group. Raises DiskRefused if that cannot be read."""
        path = self._path(group_id)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Left)
        except FileNotFoundError:
            return NEVER_LEFT
        except msgspec.DecodeError as error:
            raise DiskRefused(
                path, f"what this node had promised before it left the group is unreadable: {error}"
            ) from error

    def write(self, group_id: int, left: Left) -> None:
        """Keep it; on disk when this returns."""
        write_durably(self._path(group_id), msgspec.json.encode(left))

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Remove the promises in groups that nobody will ever open again."""
        if self._directory.exists():
            for path in self._directory.iterdir():
                if _GROUP.fullmatch(path.name) and is_gone(int(path.name, 16)):
                    path.unlink()

    def of_unopened(self, group_id: int, recovered: RecoveredGroup) -> Left:
        """What is promised by a group's records in the log, when the group was not opened since the start."""
        before, last = self.read(group_id), recovered.entries[-1:]
        end = (last[0].term, last[0].index) if last else (recovered.term, recovered.covered)
        end = max(end, (before.last_term, before.last_index))
        return Left(max(recovered.term, before.term), *end)

    def _path(self, group_id: int) -> Path:
        return self._directory / f"{group_id:016x}"

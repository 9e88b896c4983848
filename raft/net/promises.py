"""Detection of disks that were rolled back: each node remembers how far the other nodes said their logs were on disk.

A snapshot of a disk, or a backup of a node's folder, started in the place of the node, has the node's incarnation and
lacks the acks and votes that the node has given since. Votes and acks of all groups are in one log, whose end only
grows. So each node tells the others in its heartbeats the position up to which its log is on disk, and in its hello the
position where its log ended when the process began. A node that begins below a position that it told before has lost
promises. They stay lost when its log grows beyond that position again, so from then on no process may begin with this
disk: the node writes that into its folder (RaftHost), and the others remember it, should another copy be put in its
place.

The other nodes can detect only the loss of what the node had told them before it was rolled back. Each node saves the
positions that it was told from time to time, so that they outlive a restart of all nodes.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from ...partition.log.fsutil import write_durably
from ..messages import Hello

NO_POSITION = (1 << 63) - 1
"""The position remembered of a disk that was rolled back: no log begins at it or beyond."""


class Told(NamedTuple):
    """The last word of a node: the incarnation of its disk, the session of its process, the position of its log."""

    incarnation: int
    session: int
    position: int


class Promises:
    """The last word of each other node, by node id, saved in the file ``path``; None: in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file, if there is one. Blocks. A file that cannot be read counts as empty."""
        self.told: dict[str, Told] = {}
        self._path = path
        self._is_changed = False
        if path is not None and path.exists():
            try:
                self.told = msgspec.json.decode(path.read_bytes(), type=dict[str, Told])
            except (msgspec.MsgspecError, OSError):
                self.told = {}

    def lost(self, hello: Hello) -> int | None:
        """None, or the position that the sender of this hello had told of the same disk in an earlier session, if its
        log has begun below that now: its disk was rolled back. From then on no process with this disk passes.
        """
        told = self.told.get(hello.node_id)
        if told is None or told.incarnation != hello.incarnation or told.session == hello.session:
            return None
        if hello.began >= told.position:
            return None
        self._remember(hello.node_id, told._replace(position=NO_POSITION))
        return told.position

    def greeted(self, hello: Hello) -> None:
        """Remember the hello of a node that has lost nothing."""
        told = self.told.get(hello.node_id)
        if told is None or (told.incarnation, told.session) != (hello.incarnation, hello.session):
            self._remember(hello.node_id, Told(hello.incarnation, hello.session, hello.began))

    def tells(self, node_id: str, position: int) -> None:
        """Remember the position in a heartbeat of a connected node. If its disk was taken for rolled back, it was not:
        the hello that showed so came from a copy, or was an older one that came late.
        """
        told = self.told.get(node_id)
        if told is not None and (told.position < position or told.position == NO_POSITION):
            self._remember(node_id, told._replace(position=position))

    def _remember(self, node_id: str, told: Told) -> None:
        self.told[node_id] = told
        self._is_changed = True

    def save(self) -> None:
        """Write the file, if anything has changed. Blocks. Raises OSError."""
        if self._path is not None and self._is_changed:
            self._is_changed = False
            write_durably(self._path, msgspec.json.encode(self.told))

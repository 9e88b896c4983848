"""How far the logs of other nodes were on their disks, by what these said: so a disk that was rolled back is noticed.

A snapshot of a disk, or a backup of a node's folder, started in the place of the node, has the node's incarnation and
lacks what the node has acknowledged and voted since. Votes and acknowledgements of all groups are in one log, whose end
only grows. So each node tells the others with its heartbeats how far its log is on disk, and where it ended when its
process began. A node that begins below what it had told an earlier time has lost promises. They stay lost when its log
grows beyond that place again, so from then on no process may begin with this disk: the node writes that into its folder
(RaftHost), and the others remember it, should another copy be put in its place.

The other nodes notice that only as far as the node had told them before it was rolled back. Each node writes down now
and then what it was told, so that this outlives a restart of all nodes.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from ...partition.log.fsutil import write_durably
from ..messages import Hello

NO_POSITION = (1 << 63) - 1
"""In place of the position of a disk that was rolled back since: no log begins there."""


class Told(NamedTuple):
    """What a node said last: the incarnation of its disk, the session of its process, the position of its log."""

    incarnation: int
    session: int
    position: int


class Promises:
    """What the other nodes have told. ``path`` is where it is written down; None: nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        """Blocks. What cannot be read counts as never told."""
        self.told: dict[str, Told] = {}
        self._path = path
        self._is_changed = False
        if path is not None and path.exists():
            try:
                self.told = msgspec.json.decode(path.read_bytes(), type=dict[str, Told])
            except (msgspec.MsgspecError, OSError):
                self.told = {}

    def lost(self, hello: Hello) -> int | None:
        """The position that the sender of this hello had told of the same disk, and below which its log has begun now;
        None: it has lost nothing that is known here. After a loss no process that begins with this disk passes.
        """
        told = self.told.get(hello.node_id)
        if told is None or told.incarnation != hello.incarnation or told.session == hello.session:
            return None
        if hello.began >= told.position:
            return None
        self._remember(hello.node_id, told._replace(position=NO_POSITION))
        return told.position

    def greeted(self, hello: Hello) -> None:
        """A node has introduced itself, and has lost nothing."""
        told = self.told.get(hello.node_id)
        if told is None or (told.incarnation, told.session) != (hello.incarnation, hello.session):
            self._remember(hello.node_id, Told(hello.incarnation, hello.session, hello.began))

    def tells(self, node_id: str, position: int) -> None:
        """A node that has introduced itself says how far its log is on disk. If its disk was taken for rolled back, it
        is not: the hello that said so came from a copy, or was an older one that came late.
        """
        told = self.told.get(node_id)
        if told is not None and (told.position < position or told.position == NO_POSITION):
            self._remember(node_id, told._replace(position=position))

    def _remember(self, node_id: str, told: Told) -> None:
        self.told[node_id] = told
        self._is_changed = True

    def save(self) -> None:
        """Write it down, if there is something new. Blocks. Raises OSError."""
        if self._path is not None and self._is_changed:
            self._is_changed = False
            write_durably(self._path, msgspec.json.encode(self.told))

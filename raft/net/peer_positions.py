"""Detection of disks that were rolled back: each node remembers the log positions that its peers have reported.

A snapshot of a disk, or a backup of a node's folder, that is started in place of the original has the node's
incarnation, and lacks the acks and votes that the node has given since. Votes and acks of all groups are in one log,
whose end only grows. So each node reports in its heartbeats the position up to which its log is on disk, and in its
hello the position where its log ended when the process began. If ``began < reported position`` for one incarnation, the
disk was rolled back: acks and votes are lost, and stay lost when the log grows beyond that position again. So no
process may ever run with this disk again: the node writes that into its folder (RaftHost), and its peers remember it,
in case another copy is started.

Peers detect only the loss of positions that were reported to them. Each node saves the reported positions from time to
time, so that they survive a restart of all nodes.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from ...partition.log.fsutil import write_durably
from ..messages import Hello

NO_POSITION = (1 << 63) - 1
"""The remembered position of a disk that was rolled back: no log reaches it, so ``check`` refuses every hello."""


class PeerPosition(NamedTuple):
    """The last report of a node: the incarnation of its disk, the session of its process, the position of its log."""

    incarnation: int
    session: int
    position: int


class PeerPositions:
    """The last report of each other node, by node id, saved in the file ``path``; None: in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file, if there is one. Blocks. A file that cannot be read counts as empty."""
        self.told: dict[str, PeerPosition] = {}
        self._path = path
        self._is_changed = False
        if path is not None and path.exists():
            try:
                self.told = msgspec.json.decode(path.read_bytes(), type=dict[str, PeerPosition])
            except (msgspec.MsgspecError, OSError):
                self.told = {}

    def check(self, hello: Hello) -> int | None:
        """The position that the sender of this hello reported in an earlier session, if its disk was rolled back since:
        ``hello.began < position`` with the same incarnation. From then on every process with this disk is refused.
        None: the disk was not rolled back.
        """
        told = self.told.get(hello.node_id)
        if told is None or told.incarnation != hello.incarnation or told.session == hello.session:
            return None
        if hello.began >= told.position:
            return None
        self._remember(hello.node_id, told._replace(position=NO_POSITION))
        return told.position

    def note_hello(self, hello: Hello) -> None:
        """Remember the hello of a node that passed ``check``."""
        told = self.told.get(hello.node_id)
        if told is None or (told.incarnation, told.session) != (hello.incarnation, hello.session):
            self._remember(hello.node_id, PeerPosition(hello.incarnation, hello.session, hello.began))

    def note_position(self, node_id: str, position: int) -> None:
        """Remember the position in a heartbeat of a connected node. This lifts the mark of a rolled-back disk: the
        hello that caused the mark came from a copy, or was an old one that arrived late.
        """
        told = self.told.get(node_id)
        if told is not None and (told.position < position or told.position == NO_POSITION):
            self._remember(node_id, told._replace(position=position))

    def _remember(self, node_id: str, told: PeerPosition) -> None:
        self.told[node_id] = told
        self._is_changed = True

    def save(self) -> None:
        """Write the file, if anything has changed. Blocks. Raises OSError."""
        if self._path is not None and self._is_changed:
            self._is_changed = False
            write_durably(self._path, msgspec.json.encode(self.told))

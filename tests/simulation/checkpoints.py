"""Checkpoints of a simulated process: captured, durable after a sync and a rename, offered, and fetched by others."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stockade.raft.core.group import Group
from stockade.raft.log.configuration import Configuration
from stockade.raft.log.origin import Origin
from stockade.raft.machine import FileExtent

if TYPE_CHECKING:
    from simulation.network import Connection
    from simulation.world import Process

NOWHERE = Path("simulated")
FETCH_S = (0.001, 0.3)
FAILURES = 0.2
"""So often a fetch fails for no reason that is played otherwise."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    index: int
    term: int
    configuration: Configuration
    state: bytes
    files: tuple[FileExtent, ...] = ()

    @property
    def origin(self) -> Origin:
        return Origin(self.index, self.term, self.configuration)


class Checkpoints:
    """Those of one process. A crash before the rename leaves the old one; one at a time for a group."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._world = process.world
        self._disk = process.world.disks[process.node_id]
        self._busy: set[int] = set()

    def take(self, group_id: int) -> None:
        """Begin one of a group, unless there is nothing new."""
        group = self._process.groups.get(group_id)
        captured = None if group is None or group_id in self._busy else group.capture()
        if captured is None or captured.index <= self._disk.covered(group_id):
            return
        assert group is not None
        checkpoint = Checkpoint(captured.index, captured.term, captured.configuration, captured.image.state)
        self._busy.add(group_id)
        self._world.at(self._disk.latency_s(), lambda: self._taken(group, checkpoint), self._process)

    def _taken(self, group: Group, checkpoint: Checkpoint) -> None:
        self._busy.discard(group.group_id)
        if self._is_open(group):
            self._disk.checkpoints[group.group_id] = checkpoint
            group._node.log.checkpointed(checkpoint.index)
            self._compact(group)

    def _is_open(self, group: Group) -> bool:
        """Whether it was neither closed nor erased meanwhile."""
        return self._process.groups.get(group.group_id) is group

    def _compact(self, group: Group) -> None:
        """Drop some entries that the checkpoint covers, in memory and perhaps on disk; some may stay for followers."""
        journal, rng = group._node.log, self._world.rng
        index = rng.choice([journal.origin.index, rng.randint(journal.base_index, journal.origin.index)])
        journal.compact(index)
        is_durable = self._disk.durable[group.group_id].term_at(index) == journal.term_at(index)
        if rng.random() < 0.7 and is_durable:  # files with records that others undo are not old enough to go
            self._disk.compact(group.group_id, index)

    def fetch(self, group_id: int, node_id: str, index: int) -> None:
        """Begin to fetch one from another node, unless one is under way."""
        connection = self._world.network.link(self._process.node_id, node_id).connection
        is_full = self._process.node_id in self._world.full
        if group_id not in self._busy and connection is not None and not is_full:
            self._busy.add(group_id)
            group = self._process.groups[group_id]
            call = lambda: self._fetched(group, node_id, index, connection)  # noqa: E731
            self._world.at(self._world.rng.uniform(*FETCH_S), call, self._process)

    def _fetched(self, group: Group, node_id: str, index: int, connection: "Connection") -> None:
        link = self._world.network.link(self._process.node_id, node_id)
        checkpoint = self._world.disks[node_id].checkpoints.get(group.group_id)
        lost = not connection.is_open or link.connection is not connection or link.is_held
        if lost or checkpoint is None or checkpoint.index < index or self._world.rng.random() < FAILURES:
            self._busy.discard(group.group_id)
        else:
            call = lambda: self._written(group, checkpoint)  # noqa: E731
            self._world.at(self._disk.latency_s(), call, self._process)

    def _written(self, group: Group, checkpoint: Checkpoint) -> None:
        """It is synced: the rename makes it count, and in a later turn of the loop the group takes it in."""
        if self._is_open(group) and checkpoint.index > self._disk.covered(group.group_id):
            self._disk.checkpoints[group.group_id] = checkpoint
            self._world.at(1e-5, lambda: self._install(group, checkpoint), self._process)
        else:
            self._busy.discard(group.group_id)

    def _install(self, group: Group, checkpoint: Checkpoint) -> None:
        self._busy.discard(group.group_id)
        if self._is_open(group):
            group.install(checkpoint, NOWHERE)

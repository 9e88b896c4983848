"""The replicas that this node holds: opened and erased as the catalog says, found by topic and partition.

A replica is also remembered on disk, so that a restarted node serves its partitions before it has heard from the
controller.
"""

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import structs

from ...partition.api.cluster import Reassignment
from ...partition.api.topics import TopicConfig
from ...partition.log.fsutil import erase_durably, make_directory, write_durably
from ...raft.threads import in_thread
from ...raft.wal.errors import DiskRefused
from ..condition import Condition
from ..controller.topology.catalog import CONTROLLER_GROUP, group_id, topic_partition
from ..controller.topology.moves import Move
from ..rpc import Catalog, Placement
from .replica import Replica

_log = logging.getLogger(__name__)


class Assignment(msgspec.Struct, frozen=True):
    """A replica that the catalog places on this node, with all that is needed to open it. ``founders``: the group's
    first configuration; empty: the replica joins the group. ``first_slot``: as in Placement.
    """

    topic: str
    topic_id: int
    partition: int
    founders: dict[str, int]
    config: TopicConfig
    is_sealed: bool = False
    config_order: int = 0
    first_slot: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Topic id and partition."""
        return self.topic_id, self.partition

    @property
    def group_id(self) -> int:
        """Raft group of the partition."""
        return group_id(self.topic_id, self.partition)


def by_node(places: Iterable[tuple[int, Iterable[str]]]) -> dict[str, list[int]]:
    """The groups that each node holds; ``places`` has groups with their nodes."""
    held: defaultdict[str, list[int]] = defaultdict(list)
    for group, nodes in places:
        for node_id in nodes:
            held[node_id].append(group)
    return held


class ReplicaManager:
    """All replicas of this node, and the catalog they follow."""

    def __init__(
        self,
        node_id: str,
        directory: Path,
        open_replica: Callable[[Assignment, Path], Replica],
        close_group: Callable[[int], Awaitable[None]],
        forget_tombstones: Callable[[Callable[[int], bool]], Awaitable[None]],
    ) -> None:
        """``close_group`` ends the Raft group of a replica and erases its log; ``forget_tombstones`` forgets the
        tombstones of the groups for which its argument is true.
        """
        self._node_id = node_id
        self._directory = directory
        self._open_replica = open_replica
        self._close_group = close_group
        self._forget_tombstones = forget_tombstones
        self._held: dict[tuple[int, int], Replica] = {}  # by topic id and partition
        self._founders: dict[tuple[int, int], dict[str, int]] = {}  # of those held: the log of each begins with them
        self.topics: dict[str, Placement] = {}
        self.index: int = 0
        self.controller: tuple[str | None, int] = (None, 0)
        """Node id and term of the controller group's leader, by the newest term that a controller has reported."""
        self.changed: Condition = Condition()
        self.owe: Callable[[str], Awaitable[None]] | None = None
        """Notes, durably, that a folder of the tiered store belongs to a topic that was deleted; None: not set yet."""

    async def open_remembered(self) -> None:
        """Open the replicas that this node held when it stopped, and finish the erasures that it had begun. Raises
        DiskRefused.
        """
        make_directory(self._directory)
        for folder in sorted(self._directory.iterdir()):
            path = folder / "replica.json"
            if path.exists():
                try:
                    assignment = msgspec.json.decode(path.read_bytes(), type=Assignment)
                except msgspec.DecodeError as error:
                    raise DiskRefused(path, f"damaged ({error})") from error
                self._open(assignment)
            else:
                await self._close_group(int(folder.name, 16))
                shutil.rmtree(folder)

    def heard_of_controller(self, leader: str | None, term: int) -> None:
        """Note the controller group's leader as a controller reports it. Reports of an older term change nothing, nor
        do those of the same term once its leader is known.
        """
        known, known_term = self.controller
        if term > known_term or (term == known_term and known is None):
            self.controller = (leader, term)

    async def follow(self, catalog: Catalog) -> None:
        """Open, configure and erase replicas as the catalog says; an older catalog than the last is passed over."""
        if catalog.index < self.index:
            return
        self.topics = {placement.topic: placement for placement in catalog.topics}
        wanted = {a.key: a for placement in catalog.topics for a in self._assignments(placement)}
        for replica in list(self._held.values()):
            # A topic's id is the index of its creation: one that is younger than this catalog is not deleted, but
            # not yet in it.
            if (replica.topic_id, replica.partition) not in wanted and replica.topic_id <= catalog.index:
                await self._erase(replica)
        new = [assignment for key, assignment in wanted.items() if key not in self._held]
        changed = [
            structs.replace(a, founders=self._founders[key])
            for key, a in wanted.items()
            if key in self._held and self._held[key].config_order < a.config_order
        ]
        notes = iter((*new, *changed))
        while await in_thread(self._remember, notes):  # a node that stops waits for one note, not for hundreds
            pass
        for assignment in changed:
            self._configure(self._held[assignment.key], assignment)
        for assignment in new:
            self._open(assignment)
            await asyncio.sleep(0)  # hundreds of them hold the loop for longer than other groups wait for a heartbeat
        await self._forget_deleted(catalog)
        self.index = catalog.index
        self.changed.notify()

    async def _forget_deleted(self, catalog: Catalog) -> None:
        """Forget the tombstones of deleted topics: an id never returns, so no replica of them is opened again."""
        topics = {placement.topic_id for placement in catalog.topics}

        def is_gone(group: int) -> bool:
            topic_id = topic_partition(group)[0]
            return group != CONTROLLER_GROUP and topic_id not in topics and topic_id <= catalog.index

        await self._forget_tombstones(is_gone)

    def find(self, topic: str, partition: int) -> Replica | None:
        """This node's replica of a partition of the topic that has this name in the catalog or, if none has, of the
        newest topic with the name of which replicas are held. None: this node holds none.
        """
        placement = self.topics.get(topic)
        if placement is not None:
            return self._held.get((placement.topic_id, partition))
        named = [r for r in self._held.values() if (r.topic, r.partition) == (topic, partition)]
        return max(named, key=lambda replica: replica.topic_id, default=None)

    def get(self, group: int) -> Replica | None:
        """This node's replica of a group; None: it holds none."""
        return self._held.get(topic_partition(group))

    def reassignment(self, move: Move) -> Reassignment | None:
        """A move with the name of its topic; None for the controller group, and for a topic not known here."""
        topic_id, partition = topic_partition(move.group_id)
        names = [placement.topic for placement in self.topics.values() if placement.topic_id == topic_id]
        return Reassignment(names[0], partition, move.target) if names else None

    def all(self) -> Iterable[Replica]:
        """Every replica of this node."""
        return self._held.values()

    def _assignments(self, placement: Placement) -> Iterable[Assignment]:
        for partition, replicas in enumerate(placement.replicas):
            if self._node_id in replicas:
                founders = placement.founders[partition]
                yield Assignment(
                    placement.topic,
                    placement.topic_id,
                    partition,
                    founders,
                    placement.config,
                    placement.is_sealed,
                    placement.config_order,
                    placement.first_slots.get(partition, 0),
                )

    def _path(self, group: int) -> Path:
        return self._directory / f"{group:016x}"

    def _remember(self, assignments: Iterator[Assignment]) -> bool:
        """Note the next replica on disk; returns whether there was one."""
        for assignment in assignments:
            write_durably(self._path(assignment.group_id) / "replica.json", msgspec.json.encode(assignment))
            return True
        return False

    def _open(self, assignment: Assignment) -> None:
        _log.info("opening %s/%d of topic %d", assignment.topic, assignment.partition, assignment.topic_id)
        replica = self._open_replica(assignment, self._path(assignment.group_id))
        self._held[assignment.key], self._founders[assignment.key] = replica, assignment.founders
        replica.first_slot = assignment.first_slot
        self._configure(replica, assignment)

    def _configure(self, replica: Replica, assignment: Assignment) -> None:
        replica.reconfigure(assignment.config, is_sealed=assignment.is_sealed, order=assignment.config_order)

    async def _erase(self, replica: Replica) -> None:
        group = replica.group.group_id
        _log.info("erasing %s/%d of topic %d", replica.topic, replica.partition, replica.topic_id)
        del self._held[replica.topic_id, replica.partition], self._founders[replica.topic_id, replica.partition]
        placed = self.topics.get(replica.topic)
        is_deleted = placed is None or placed.topic_id != replica.topic_id
        replica.retire(is_deleted=is_deleted)
        if is_deleted and self.owe is not None and (folder := replica.machine.tier.folder):
            await self.owe(folder)
        # The note to open the replica goes first: once its log is gone, the group must never be opened as founded.
        await in_thread(erase_durably, self._path(group) / "replica.json")
        await self._close_group(group)
        replica.close()
        await in_thread(shutil.rmtree, self._path(group))

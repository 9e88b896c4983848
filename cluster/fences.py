"""What partitions still have to be told about grants, and what is known of what they were told.

For each partition there is at most one thing to do: install the grant that has it, or clear the last grant
that had it. Why that is enough, whatever is lost, repeated or late on the way, is argued in ownership.py.
Pure state of the controller's machine.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from .catalog import group_id, topic_partition
from .commands import FenceRef, GrantState, GroupId
from .work import ClearFenceWork, InstallFenceWork


class Grant(msgspec.Struct):
    """A grant, which lives and dies as one. ``resume_epoch`` is what its acquire asked for."""

    grant_id: str
    ticket_id: str
    grant_index: int
    session: str
    topic: str
    topic_id: int
    partitions: list[int]
    all_partitions: bool
    mode: str
    producer_name: str
    epoch: int
    resume_epoch: int | None
    pending: set[int]

    def state(self) -> GrantState:
        """As answered."""
        return GrantState(
            grant_id=self.grant_id,
            ticket_id=self.ticket_id,
            grant_index=self.grant_index,
            session=self.session,
            topic=self.topic,
            topic_id=self.topic_id,
            partitions=self.partitions,
            all_partitions=self.all_partitions,
            mode=self.mode,
            producer_name=self.producer_name,
            epoch=self.epoch,
            pending=sorted(self.pending),
        )

    def groups(self) -> list[GroupId]:
        """The Raft groups of the set, ascending."""
        return [group_id(self.topic_id, partition) for partition in self.partitions]


class SavedFences(msgspec.Struct, frozen=True):
    """Installs by the id of their grant, and clears, both in the order in which they came to be due."""

    installs: list[tuple[GroupId, str]]
    clears: list[tuple[GroupId, Grant]]
    over_through: list[tuple[GroupId, int]]


class Fences:
    """The fence protocol's bookkeeping. ``Grant.pending`` is written here only."""

    def __init__(self) -> None:
        self.installs: dict[GroupId, Grant] = {}
        self.clears: dict[GroupId, Grant] = {}
        # Every grant up to this index is known to be over on the partition: its token is refused there for
        # ever.
        self._over_through: dict[GroupId, int] = {}

    def seat(self, grant: Grant) -> None:
        """A new grant: install it everywhere. It outranks whatever was to be cleared, so that is dropped."""
        grant.pending.update(grant.partitions)
        for group in grant.groups():
            self.clears.pop(group, None)
            self.installs[group] = grant

    def unseat(self, grant: Grant) -> None:
        """The grant has ended: clear it everywhere, also where it may never have arrived."""
        for group in grant.groups():
            self.installs.pop(group, None)
            self.clears[group] = grant

    def installed(self, group: GroupId, grant_id: str) -> None:
        """The partition has committed the install."""
        grant = self.installs.get(group)
        if grant is None or grant.grant_id != grant_id:
            return
        del self.installs[group]
        grant.pending.remove(topic_partition(group)[1])
        self._over_through[group] = grant.grant_index - 1

    def cleared(self, group: GroupId, grant_id: str) -> None:
        """The partition has committed the clear."""
        grant = self.clears.get(group)
        if grant is None or grant.grant_id != grant_id:
            return
        del self.clears[group]
        self._over_through[group] = grant.grant_index

    def forget(self, groups: Iterable[GroupId]) -> None:
        """The partitions are no more."""
        for group in groups:
            self.installs.pop(group, None)
            self.clears.pop(group, None)
            self._over_through.pop(group, None)

    def is_over(self, fence: FenceRef) -> bool:
        """Whether the partition is known to refuse the token of that grant."""
        return self._over_through.get(fence.group_id, 0) >= fence.grant_index

    def uncleared(self, departed: Callable[[Grant], bool]) -> list[FenceRef]:
        """Where ended grants of a kind may be in the slot still."""
        return [FenceRef(group, g.grant_index) for group, g in sorted(self.clears.items()) if departed(g)]

    def work_on(self, group: GroupId) -> InstallFenceWork | ClearFenceWork | None:
        """What to do on a partition now."""
        grant = self.installs.get(group)
        if grant is not None:
            return InstallFenceWork(
                group_id=group,
                grant_id=grant.grant_id,
                grant_index=grant.grant_index,
                epoch=grant.epoch,
                session=grant.session,
                producer_name=grant.producer_name,
                mode=grant.mode,
            )
        grant = self.clears.get(group)
        if grant is not None:
            return ClearFenceWork(group, grant.grant_id, grant.grant_index, grant.epoch)
        return None

    def save(self) -> SavedFences:
        """Everything that decides future answers."""
        installs = [(group, grant.grant_id) for group, grant in self.installs.items()]
        return SavedFences(installs, list(self.clears.items()), sorted(self._over_through.items()))

    def load(self, saved: SavedFences, grants: Mapping[str, Grant]) -> None:
        """Inverse of save, into an empty one; ``grants`` are the live ones, by id."""
        self.installs = {group: grants[grant_id] for group, grant_id in saved.installs}
        self.clears = dict(saved.clears)
        self._over_through = dict(saved.over_through)

"""Partitions as resources: the session that owns ``<topic>/<partition>`` in a group may read under that ownership, and
commit positions. So the partition has to install the fence of that resource; this module keeps the installs that are
due.

For each partition and group there is at most one reader fence to install: the last (fence_epoch, owned). A partition
takes no older fence than the one it has; of one fence_epoch, ``owned=False`` is later than ``owned=True``. So lost,
repeated and late installs do no harm. Pure state of the controller's machine.
"""

from collections.abc import Callable, Iterable

import msgspec

from ..commands import GroupId, ReaderRef
from ..topology.catalog import Catalog, Topic, group_id
from .resources import Key, Resources, partition_named
from .work import ReaderInstall


class ReaderFence(msgspec.Struct, frozen=True, array_like=True):
    """The fence of a resource: its fence_epoch, whether a session owns it, and that session's principal."""

    fence_epoch: int
    owned: bool
    principal: str = ""


SavedReaderFences = list[tuple[GroupId, list[tuple[str, ReaderFence]]]]


class ReaderFenceInstalls:
    """The reader fences that partitions have yet to commit. ``owed`` has them by partition, then by group."""

    def __init__(self) -> None:
        self.owed: dict[GroupId, dict[str, ReaderFence]] = {}

    def owe(self, group_id: GroupId, group: str, fence: ReaderFence) -> None:
        """Note that the partition has to commit this fence, in place of an earlier one for the same group."""
        self.owed.setdefault(group_id, {})[group] = fence

    def installed(self, group_id: GroupId, group: str, fence_epoch: int, *, owned: bool) -> None:
        """Note that the partition has committed this fence. A later one remains owed."""
        owed = self.owed.get(group_id, {})
        fence = owed.get(group)
        if fence is not None and (fence.fence_epoch, fence.owned) == (fence_epoch, owned):
            del owed[group]
            if not owed:
                del self.owed[group_id]

    def forget(self, groups: Iterable[GroupId]) -> None:
        """Drop what is owed to partitions that were deleted."""
        for group in groups:
            self.owed.pop(group, None)

    def is_installed(self, ref: ReaderRef) -> bool:
        """Whether the partition is known to refuse every fence_epoch older than this one, or was deleted."""
        return ref.group not in self.owed.get(ref.group_id, ())

    def work_on(self, group_id: GroupId) -> list[ReaderInstall]:
        """The installs that a partition is owed."""
        return [
            ReaderInstall(group_id, group, fence.fence_epoch, fence.owned, fence.principal)
            for group, fence in self.owed.get(group_id, {}).items()
        ]

    def save(self) -> SavedReaderFences:
        """The state on which future answers depend."""
        return [(group_id, list(owed.items())) for group_id, owed in self.owed.items()]

    def load(self, saved: SavedReaderFences) -> None:
        """Inverse of ``save``, on an empty instance."""
        self.owed = {group_id: dict(owed) for group_id, owed in saved}


class PartitionOwners:
    """The owners of partitions, as ``resources`` has them, and the fences of theirs that are owed to partitions."""

    def __init__(
        self,
        catalog: Catalog,
        resources: Resources,
        fences: ReaderFenceInstalls,
        principal_of: Callable[[str], str],
    ) -> None:
        """``principal_of``: the principal of a session."""
        self._catalog = catalog
        self._resources = resources
        self._fences = fences
        self._principal_of = principal_of

    def partition(self, resource: str) -> GroupId | None:
        """The partition that a resource names; None if there is none."""
        named = partition_named(resource)
        topic = self._catalog.topic(named[0]) if named is not None else None
        if named is None or topic is None or named[1] >= topic.partitions:
            return None
        return group_id(topic.topic_id, named[1])

    def owe(self, keys: Iterable[Key]) -> None:
        """Owe the fence of its present owner to each partition that one of these resources names."""
        for group, resource in keys:
            partition = self.partition(resource)
            if partition is not None:
                row = self._resources.find(group, resource)
                owner = "" if row.owner is None else self._principal_of(row.owner)
                self._fences.owe(partition, group, ReaderFence(row.fence_epoch, row.owner is not None, owner))

    def introduce(self, topic: Topic, partitions: list[int]) -> None:
        """Note that new partitions have to install the fences of the resources with their names, which may have had
        owners before the topic was created.
        """
        named = ((key, partition_named(key[1])) for key in self._resources.of_topic(topic.name))
        self.owe(key for key, found in named if found is not None and found[1] in partitions)

    def pending(self, keys: Iterable[Key]) -> list[ReaderRef]:
        """The reader fences of these resources that their partitions have not committed."""
        refs = []
        for group, resource in dict.fromkeys(keys):
            partition = self.partition(resource)
            if partition is not None:
                ref = ReaderRef(partition, group, self._resources.find(group, resource).fence_epoch)
                if not self._fences.is_installed(ref):
                    refs.append(ref)
        return refs
